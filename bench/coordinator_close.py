"""Aggregating 8 and 32 results: our rules from stored files, beside Flower's on arrays that it has loaded before."""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import coordinator_flower
from bench.coordinator_targets import at_least, at_most
from devtools.processes import Processes
from devtools.venv import ROOT

ROUNDS = 3
REPEATS = 3
ADAPTER_BYTES = 4 * 10_092_544
# More results than files: memory must not grow with them.
MANY = 200
OURS = ("mean", "nesterov", "stored", "median", "trimmed-mean", "krum", "multi-krum", "norm-clip")

Told = dict[str, dict[str, Any]]


def figures(folder: Path, processes: Processes) -> dict[str, Any]:
    """Medians in ms, over children of both in turn, and ratios to the faster of Flower's two implementations."""
    flower = str(coordinator_flower.python())

    def ours(count: int, repeats: int, *work: str) -> Told:
        return _child(processes, sys.executable, "bench.coordinator_ours", folder, count, repeats, *work)

    def theirs(count: int, repeats: int, *work: str) -> Told:
        return _child(processes, flower, "bench.coordinator_theirs", folder, count, repeats, *work)

    our8, their8 = [], []
    for _ in range(ROUNDS):
        our8.append(ours(8, REPEATS, *OURS))
        their8.append(theirs(8, REPEATS, "mean", "mean-app", "median", "krum", "krum-app"))
    our32 = [ours(32, REPEATS, "median", "krum")]
    # Of Flower's Krum only the one that takes each result once: the other makes 1024 passes.
    their32 = [theirs(32, 1, "median", "krum-app")]
    many = ours(MANY, 0, "stored", "median", "norm-clip")
    mean, mean_app = _ms(their8, "mean"), _ms(their8, "mean-app")
    krum, krum_app = _ms(their8, "krum"), _ms(their8, "krum-app")
    told: dict[str, Any] = {f"{name}8Ms": _ms(our8, name) for name in OURS}
    told |= {"median32Ms": _ms(our32, "median"), "krum32Ms": _ms(our32, "krum")}
    told |= {
        "flowerMean8Ms": mean, "flowerMeanApp8Ms": mean_app, "flowerMedian8Ms": _ms(their8, "median"),
        "flowerKrum8Ms": krum, "flowerKrumApp8Ms": krum_app,
        "flowerMedian32Ms": _ms(their32, "median"), "flowerKrumApp32Ms": _ms(their32, "krum-app"),
    }  # fmt: skip
    told |= {
        "closeMeanToFlower": at_least(min(mean, mean_app) / told["mean8Ms"], 8),
        "closeStoredToFlower": at_least(min(mean, mean_app) / told["stored8Ms"], 2),
        "median8ToFlower": at_least(told["flowerMedian8Ms"] / told["median8Ms"], 10),
        "median32ToFlower": at_least(told["flowerMedian32Ms"] / told["median32Ms"], 5),
        "krum8ToFlower": at_least(min(krum, krum_app) / told["krum8Ms"], 6),
        "krum32ToFlower": at_least(told["flowerKrumApp32Ms"] / told["krum32Ms"], 6),
    }
    told["memoryAdapters"] = at_most(max(_adapters(found) for found in (*our8, *our32, many)), 3)
    told["flowerMemoryAdapters8"] = {name: round(_bytes(found) / ADAPTER_BYTES, 1) for name, found in their8[0].items()}
    return told


def _child(processes: Processes, python: str, module: str, *words: object) -> Told:
    command = (python, "-m", module, *map(str, words))
    done = processes.run(*command, cwd=ROOT, env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0"})
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed")
    found: Told = json.loads(done.stdout)
    return found


def _ms(children: list[Told], work: str) -> float:
    seconds: list[float] = [second for child in children for second in child[work]["seconds"]]
    return round(1000 * statistics.median(seconds), 1)


def _bytes(found: dict[str, Any]) -> int:
    return int(found["bytes"])


def _adapters(child: Told) -> float:
    return max(_bytes(found) for found in child.values()) / ADAPTER_BYTES
