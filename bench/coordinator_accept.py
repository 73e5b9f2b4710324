"""Accepting results of 40.4 MB from two clients, durable on answer, beside a plain endpoint that does only that."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench import plain
from bench.coordinator_server import coordinator, send
from bench.coordinator_targets import at_least
from devtools.processes import Processes

ROUNDS = 5
CLIENTS = 2
# One of each a core: so the endpoint is near its bound.
PROCESSES = 2
RESULTS = 8


def figures(folder: Path, processes: Processes) -> dict[str, Any]:
    """Median results a second, in turn: ours, the endpoint's, and the endpoint's own bound without HTTP.

    The CPU of a result includes folding it into the running sum, which is waited for.
    """
    bodies = [(folder / f"{number}.safetensors").read_bytes() for number in range(RESULTS)]
    ours, theirs, bounds, spent = [], [], [], []
    with (
        coordinator(folder / "accept", folder / "globe.safetensors", processes) as running,
        plain.server(folder / "plain", processes, PROCESSES) as (host, port),
    ):
        for number in range(ROUNDS):
            before = running.settle()
            ours.append(RESULTS / send(running.port, bodies, 0, CLIENTS))
            spent.append((running.settle() - before) / RESULTS)
            theirs.append(RESULTS / plain.put(host, port, bodies, CLIENTS))
            plain.clear(folder / "plain")
            bounds.append(RESULTS / plain.bound(folder / f"bound-{number}", bodies, CLIENTS))
    rate, other, bound = statistics.median(ours), statistics.median(theirs), statistics.median(bounds)
    return {
        "acceptResultsPerSecond": round(rate, 1),
        "acceptPlainPerSecond": round(other, 1),
        "acceptToPlain": at_least(rate / other, 0.5),
        "acceptPlainToBound": round(other / bound, 2),
        "acceptCpuMsPerResult": round(1000 * statistics.median(spent)),
        "acceptValid": other / bound >= plain.LEAST_TO_BOUND,
    }
