"""Placement: all ranks or none, nothing twice, and what explain says is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mingora_scheduler.domain.explain import of_queued
from mingora_scheduler.domain.placement import Job, Need, Node, Problem, plan, problems

IMAGE, PRINT = "sha256:" + "1" * 64, "sha256:" + "2" * 64

needs = st.builds(
    Need,
    ranks=st.integers(1, 3),
    runtime=st.sampled_from(["native", "docker"]),
    cpu=st.integers(1, 4),
    memory_mib=st.integers(0, 400),
    gpu=st.booleans(),
    network_group=st.sampled_from([None, "lab"]),
    image_digest=st.sampled_from([None, IMAGE]),
    fingerprint=st.sampled_from([None, PRINT]),
    data=st.frozensets(st.sampled_from(["A", "B"])),
)
jobs = st.lists(
    st.builds(
        Job,
        id=st.integers(0, 50).map("job_{:02}".format),
        account_id=st.sampled_from(["acc_1", "acc_2"]),
        priority=st.integers(-1, 1),
        created_at=st.integers(0, 3),
        need=needs,
    ),
    max_size=6,
    unique_by=lambda job: job.id,
)
nodes = st.lists(
    st.builds(
        Node,
        id=st.integers(0, 50).map("node_{:02}".format),
        name=st.just("n"),
        account_id=st.sampled_from(["acc_1", "acc_2"]),
        machine_id=st.sampled_from(["m1", "m2"]),
        cpu=st.integers(1, 4),
        memory_mib=st.integers(100, 400),
        runtimes=st.sampled_from([frozenset({"native"}), frozenset({"native", "docker"})]),
        gpu_uuid=st.sampled_from([None, "g1", "g2"]),
        network_group=st.sampled_from([None, "lab"]),
        allow_cluster_network=st.booleans(),
        image_digest=st.sampled_from([None, IMAGE]),
        fingerprint=st.sampled_from([None, PRINT]),
        data=st.frozensets(st.sampled_from(["A", "B"])),
        waiting=st.booleans(),
        pause_reason=st.sampled_from([None, "disk"]),
        busy=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda node: node.id,
)
busy = st.frozensets(st.tuples(st.sampled_from(["m1", "m2"]), st.sampled_from(["g1", "g2"])))
PLAIN = Node("node_1", "n", "acc_1", "m1", 4, 400)


@pytest.mark.req("JOB-3", "JOB-5", "JOB-6")
@given(jobs=jobs, nodes=nodes, busy=busy)
@settings(max_examples=100, deadline=None)
def test_a_plan_breaks_no_rule(jobs: list[Job], nodes: list[Node], busy: frozenset[tuple[str, str]]) -> None:
    chosen = plan(jobs, nodes, busy)
    by_id = {node.id: node for node in nodes}
    used = [node_id for group in chosen.values() for node_id in group]
    assert len(used) == len(set(used))
    gpus: list[tuple[str, str]] = []
    for job in jobs:
        group = [by_id[node_id] for node_id in chosen.get(job.id, [])]
        assert len(group) in (0, job.need.ranks)
        for node in group:
            assert node.account_id == job.account_id and not problems(job.need, node, busy)
            if job.need.gpu:
                assert node.gpu is not None
                gpus.append(node.gpu)
    assert len(gpus) == len(set(gpus)) and not set(gpus) & busy


@pytest.mark.req("JOB-8")
@given(jobs=jobs, nodes=nodes, busy=busy)
@settings(max_examples=80, deadline=None)
def test_a_job_is_only_left_out_when_the_rest_cant_take_it(
    jobs: list[Job], nodes: list[Node], busy: frozenset[tuple[str, str]]
) -> None:
    chosen = plan(jobs, nodes, busy)
    used = {node_id for group in chosen.values() for node_id in group}
    held = {node.gpu for job in jobs if job.need.gpu for node in nodes if node.id in chosen.get(job.id, [])}
    left = [node for node in nodes if node.id not in used]
    for job in jobs:
        if job.id not in chosen:
            assert job.id not in plan([job], left, busy | {gpu for gpu in held if gpu is not None})


@pytest.mark.req("JOB-8")
def test_priority_first_then_age_and_a_big_job_holds_nobody_up() -> None:
    old, young = Job("job_1", "acc_1", 0, 1), Job("job_2", "acc_1", 0, 2)
    urgent = Job("job_3", "acc_1", 5, 3)
    assert plan([young, old], [PLAIN], []) == {"job_1": ["node_1"]}
    assert plan([young, old, urgent], [PLAIN], []) == {"job_3": ["node_1"]}
    group = Job("job_4", "acc_1", 9, 0, Need(ranks=2))
    assert plan([group, old], [PLAIN], []) == {"job_1": ["node_1"]}


FIXES: dict[str, Any] = {
    "paused": lambda node, need: replace(node, pause_reason=None),
    "away": lambda node, need: replace(node, waiting=True),
    "busy": lambda node, need: replace(node, busy=False),
    "runtime": lambda node, need: replace(node, runtimes=node.runtimes | {need.runtime}),
    "cpu": lambda node, need: replace(node, cpu=need.cpu),
    "memory": lambda node, need: replace(node, memory_mib=need.memory_mib),
    "gpu": lambda node, need: replace(node, gpu_uuid=f"new-{node.id}"),
    "network_group": lambda node, need: replace(node, network_group=need.network_group),
    "cluster_network": lambda node, need: replace(node, allow_cluster_network=True),
    "image": lambda node, need: replace(node, image_digest=need.image_digest),
    "fingerprint": lambda node, need: replace(node, fingerprint=need.fingerprint),
    "data": lambda node, need: replace(node, data=node.data | need.data),
    "gpu_busy": lambda node, need: replace(node, gpu_uuid=f"free-{node.id}"),
    "gpu_shared": lambda node, need: replace(node, gpu_uuid=f"own-{node.id}"),
}


@pytest.mark.req("JOB-8")
@given(need=needs, nodes=nodes, busy=busy)
@settings(max_examples=100, deadline=None)
def test_doing_what_explain_says_starts_the_job(
    need: Need, nodes: list[Node], busy: frozenset[tuple[str, str]]
) -> None:
    job = Job("job_1", "acc_1", 0, 0, need)
    own = [replace(node, account_id="acc_1") for node in nodes]
    for _ in range(4):  # waiting shows once a pause has been lifted or a job has ended; that takes a second look
        explanation = of_queued(job, own, busy, 0)
        own = [_fixed(node, found, need) for node, found in explanation.nodes]
    starts = job.id in plan([job], own, busy)
    assert starts == (len(own) >= need.ranks)
    if starts:
        assert "starts in a moment" in of_queued(job, own, busy, 0).summary


def _fixed(node: Node, found: tuple[Problem, ...], need: Need) -> Node:
    for problem in found:
        node = FIXES[problem.code](node, need)
    return node


@pytest.mark.req("JOB-8")
@pytest.mark.parametrize("code", sorted(set(FIXES) - {"gpu_shared"}))
def test_each_problem_is_found_alone(code: str) -> None:
    need = Need(1, "docker", 4, 400, True, "lab", IMAGE, PRINT, frozenset({"A"}))
    good = Node(
        "node_1", "n", "acc_1", "m1", 4, 400, frozenset({"docker"}), "g1", "lab", True, IMAGE, PRINT, frozenset({"A"})
    )
    assert problems(need, good, frozenset()) == []
    worse: dict[str, Node] = {
        "paused": replace(good, pause_reason="disk"),
        "away": replace(good, waiting=False),
        "busy": replace(good, busy=True),
        "runtime": replace(good, runtimes=frozenset({"native"})),
        "cpu": replace(good, cpu=3),
        "memory": replace(good, memory_mib=399),
        "gpu": replace(good, gpu_uuid=None),
        "network_group": replace(good, network_group=None),
        "cluster_network": replace(good, allow_cluster_network=False),
        "image": replace(good, image_digest=None),
        "fingerprint": replace(good, fingerprint=None),
        "data": replace(good, data=frozenset()),
        "gpu_busy": good,
    }
    taken = frozenset({("m1", "g1")}) if code == "gpu_busy" else frozenset()
    assert [problem.code for problem in problems(need, worse[code], taken)] == [code]


@pytest.mark.req("JOB-5")
def test_needs_are_read_from_the_spec() -> None:
    assert Need.of({}) == Need()
    spec = {
        "runtime": "docker",
        "resources": {"ranks": 2, "cpu": 3, "memoryMiB": 64, "gpu": 1, "networkGroup": "lab"},
        "environment": {"imageDigest": IMAGE, "fingerprint": PRINT},
        "data": ["A"],
    }
    assert Need.of(spec) == Need(2, "docker", 3, 64, True, "lab", IMAGE, PRINT, frozenset({"A"}))


@pytest.mark.req("JOB-8")
def test_summaries() -> None:
    job = Job("job_1", "acc_1", 0, 0, Need(ranks=2))
    assert of_queued(job, [], frozenset(), 0).summary.endswith("Start one: mingora-worker --root DIR --allow-own-code")
    docker = Job("job_1", "acc_1", 0, 0, Need(runtime="docker"))
    assert of_queued(docker, [], frozenset(), 0).summary.endswith("DIR --docker-image repository@sha256:…")
    assert "7 seconds" in of_queued(job, [PLAIN], frozenset(), 7).summary
    assert "needs 2 fitting workers" in of_queued(job, [PLAIN], frozenset(), 0).summary


@pytest.mark.req("JOB-8")
@pytest.mark.parametrize("reason", ["The worker was stopped.", "The worker was stopped"])
def test_a_reason_to_pause_ends_with_one_full_stop(reason: str) -> None:
    node = replace(PLAIN, pause_reason=reason)
    assert [problem.message for problem in problems(Need(), node, frozenset())] == [
        "It is paused: The worker was stopped."
    ]
