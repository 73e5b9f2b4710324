"""Which nodes get which jobs: every rank of a job has a node of its own, or the job waits (JOB-3, JOB-5, JOB-6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Gpu = tuple[str, str]
"""A GPU: the machine's id and the GPU's UUID."""
RUNTIME_OPTIONS = {"native": "--allow-own-code", "docker": "--docker-image repository@sha256:…"}
"""What a worker is started with to run such jobs."""


@dataclass(frozen=True, slots=True)
class Need:
    """What each rank of a job asks of a node."""

    ranks: int = 1
    runtime: str = "native"
    cpu: int = 1
    memory_mib: int = 0
    gpu: bool = False
    network_group: str | None = None
    image_digest: str | None = None
    fingerprint: str | None = None
    data: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Need:
        """The needs stated in a job's spec."""
        resources, environment = spec.get("resources") or {}, spec.get("environment") or {}
        return cls(
            ranks=resources.get("ranks", 1),
            runtime=spec.get("runtime", "native"),
            cpu=resources.get("cpu", 1),
            memory_mib=resources.get("memoryMiB", 0),
            gpu=bool(resources.get("gpu", 0)),
            network_group=resources.get("networkGroup"),
            image_digest=environment.get("imageDigest"),
            fingerprint=environment.get("fingerprint"),
            data=frozenset(spec.get("data") or ()),
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node as scheduling sees it. ``waiting``: a claim of it is open; ``busy``: it has a live lease."""

    id: str
    name: str
    account_id: str
    machine_id: str
    cpu: int
    memory_mib: int
    runtimes: frozenset[str] = frozenset({"native"})
    gpu_uuid: str | None = None
    network_group: str | None = None
    allow_cluster_network: bool = False
    image_digest: str | None = None
    fingerprint: str | None = None
    data: frozenset[str] = frozenset()
    waiting: bool = True
    pause_reason: str | None = None
    busy: bool = False

    @property
    def gpu(self) -> Gpu | None:
        return None if self.gpu_uuid is None else (self.machine_id, self.gpu_uuid)


@dataclass(frozen=True, slots=True)
class Job:
    """A queued job. ``created_at`` is milliseconds since the epoch."""

    id: str
    account_id: str
    priority: int
    created_at: int
    need: Need = field(default_factory=Need)


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a node from a job, so that undoing it lets the job start there."""

    code: str
    message: str


def problems(need: Need, node: Node, busy_gpus: frozenset[Gpu]) -> list[Problem]:
    """All that keeps ``node`` from taking a rank with this need now; empty when it can."""
    checks = [
        (
            node.pause_reason is not None,
            "paused",
            f"It is paused: {(node.pause_reason or 'no reason given').rstrip('.')}.",
        ),
        (
            not node.waiting and not node.busy and node.pause_reason is None,
            "away",
            "It isn't asking for work. Start the worker there, or see why it can't reach the platform.",
        ),
        (node.busy, "busy", "It runs another job."),
        *_fixed(need, node),
        (
            need.gpu and node.gpu in busy_gpus,
            "gpu_busy",
            "Its GPU is used by another job on that machine.",
        ),
    ]
    return [Problem(code, message) for wrong, code, message in checks if wrong]


def _fixed(need: Need, node: Node) -> list[tuple[bool, str, str]]:
    """What only another node, or this one started otherwise, can change."""
    lacking = ", ".join(sorted(need.data - node.data))
    group = need.network_group
    return [
        (
            need.runtime not in node.runtimes,
            "runtime",
            f"It doesn't run {need.runtime} jobs. Start it with {RUNTIME_OPTIONS[need.runtime]}.",
        ),
        (need.cpu > node.cpu, "cpu", f"It has {node.cpu} CPUs; the job asks for {need.cpu}."),
        (
            need.memory_mib > node.memory_mib,
            "memory",
            f"It has {node.memory_mib} MiB of memory; the job asks for {need.memory_mib}.",
        ),
        (need.gpu and node.gpu is None, "gpu", "It offers no GPU. Start it with --gpu-index."),
        (
            group is not None and node.network_group != group,
            "network_group",
            f"It isn't in the network group {group!r}. Start it with --network-group.",
        ),
        (
            group is not None and not node.allow_cluster_network,
            "cluster_network",
            "It doesn't take jobs that need the network group. Start it with --allow-cluster-network.",
        ),
        (
            need.image_digest is not None and node.image_digest != need.image_digest,
            "image",
            f"Its image isn't {need.image_digest}. Start it with that --docker-image, or change the job.",
        ),
        (
            need.fingerprint is not None and node.fingerprint != need.fingerprint,
            "fingerprint",
            f"Its environment isn't {need.fingerprint}. Make the environments equal, or change the job.",
        ),
        (bool(lacking), "data", f"It lacks the data {lacking}. Start it with --data NAME=PATH."),
    ]


def plan(jobs: Iterable[Job], nodes: Sequence[Node], busy_gpus: Iterable[Gpu]) -> dict[str, list[str]]:
    """The node ids for each job that can start now, in rank order; a job gets all its ranks or isn't in the answer.

    Higher priority first, then the older job. A job that doesn't fit holds no later one up.
    """
    free = {node.id: node for node in nodes}
    taken = set(busy_gpus)
    chosen: dict[str, list[str]] = {}
    # Nodes only get fewer, so what one job couldn't get, no later one of the same need can.
    hopeless: set[tuple[str, Need]] = set()
    for job in sorted(jobs, key=lambda job: (-job.priority, job.created_at, job.id)):
        if (job.account_id, job.need) in hopeless:
            continue
        group = _group(job, free.values(), taken)
        if group is None:
            hopeless.add((job.account_id, job.need))
            continue
        chosen[job.id] = [node.id for node in group]
        for node in group:
            del free[node.id]
            if job.need.gpu and node.gpu is not None:
                taken.add(node.gpu)
    return chosen


def _group(job: Job, nodes: Iterable[Node], taken: set[Gpu]) -> list[Node] | None:
    busy = frozenset(taken)
    fitting = [node for node in nodes if node.account_id == job.account_id and not problems(job.need, node, busy)]
    group: list[Node] = []
    used: set[Gpu] = set()
    for node in sorted(fitting, key=_scarcity):
        if len(group) == job.need.ranks:
            break
        if job.need.gpu and node.gpu is not None:
            if node.gpu in used:
                continue
            used.add(node.gpu)
        group.append(node)
    return group if len(group) == job.need.ranks else None


def _scarcity(node: Node) -> tuple[bool, int, int, int, str]:
    """The plainest node that fits goes first, so that rare ones stay free for jobs that need them."""
    return (node.gpu_uuid is not None, len(node.data), node.memory_mib, node.cpu, node.id)
