"""What a job waits for, said so that doing it starts the job (JOB-8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mingora_scheduler.domain.placement import RUNTIME_OPTIONS, Gpu, Job, Node, Problem, plan, problems

KNOWN = (
    "whether the worker asks for work, is paused or busy",
    "runtime",
    "CPUs, memory and GPU",
    "network group",
    "environment",
    "local data",
)

_STATES = {
    "reserved": "Workers have been chosen and make ready.",
    "running": "The job runs.",
    "stopping": "The job is being stopped.",
    "succeeded": "The job has succeeded.",
    "failed": "The job has failed.",
    "cancelled": "The job was cancelled.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A sentence, and each node with what keeps it from the job."""

    waiting: bool
    summary: str
    nodes: tuple[tuple[Node, tuple[Problem, ...]], ...] = ()


def of_state(state: str) -> Explanation:
    """Of a job that doesn't wait for nodes."""
    return Explanation(False, _STATES[state])


def of_queued(job: Job, nodes: Sequence[Node], busy_gpus: frozenset[Gpu], retry_in: int) -> Explanation:
    """Of a queued job; ``retry_in`` is how many seconds it still holds back after a failure."""
    found = []
    seen: set[Gpu] = set()
    for node in nodes:
        wrong = problems(job.need, node, busy_gpus)
        if job.need.gpu and not wrong and node.gpu is not None:
            if node.gpu in seen:
                wrong = [Problem("gpu_shared", "Another worker listed here offers the same GPU; one rank can use it.")]
            seen.add(node.gpu)
        found.append((node, tuple(wrong)))
    return Explanation(True, _summary(job, nodes, busy_gpus, found, retry_in), tuple(found))


def _summary(
    job: Job,
    nodes: Sequence[Node],
    busy_gpus: frozenset[Gpu],
    found: Sequence[tuple[Node, tuple[Problem, ...]]],
    retry_in: int,
) -> str:
    if retry_in > 0:
        return f"The last attempt failed; the next one may start in {retry_in} seconds."
    if not nodes:
        return f"No worker is registered. Start one: mingora-worker --root DIR {RUNTIME_OPTIONS[job.need.runtime]}"
    if job.id in plan([job], nodes, busy_gpus):
        return "Enough workers are free and fit. The job starts in a moment, unless an earlier one takes them."
    fitting = sum(not wrong for _, wrong in found)
    ranks = job.need.ranks
    return (
        f"The job needs {ranks} fitting worker{'s' if ranks > 1 else ''} at the same time; {fitting} can take it now."
    )
