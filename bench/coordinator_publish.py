"""From the last accepted result to the next round, published and durable: at 8 results and at 1,000."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench.coordinator_server import coordinator, send
from bench.coordinator_targets import at_most
from devtools.processes import Processes

FEW, MANY = 8, 1000
ROUNDS = 3
OUTERS = ("mean", "nesterov")
# What the time is held against: the adapter written, hashed and fsynced this many times.
WRITES = 4


def figures(folder: Path, processes: Processes) -> dict[str, Any]:
    """Medians in ms, in turn, of: a round of 8, a round of 1,000, the adapter written, hashed and fsynced."""
    found: dict[str, list[float]] = {f"{outer}{count}": [] for outer in OUTERS for count in (FEW, MANY)}
    writes = []
    for _ in range(ROUNDS):
        for outer in OUTERS:
            for count in (FEW, MANY):
                found[f"{outer}{count}"].append(_publication(folder, processes, outer, count))
                writes.append(_write(folder))
    middle = {name: statistics.median(values) for name, values in found.items()}
    told: dict[str, Any] = {f"publish{name.capitalize()}Ms": round(value) for name, value in middle.items()}
    told["writeHashFsyncMs"] = round(statistics.median(writes))
    for outer in OUTERS:
        few, many = middle[f"{outer}{FEW}"], middle[f"{outer}{MANY}"]
        told[f"publish{outer.capitalize()}ManyToFew"] = at_most(many / few, 1.5)
        told[f"publish{outer.capitalize()}ToWrites"] = at_most(max(few, many) / statistics.median(writes) / WRITES, 1)
    return told


def _publication(folder: Path, processes: Processes, outer: str, count: int) -> float:
    """Milliseconds from the record of the last result to its answer, which waits until the next round is given out."""
    data, initial = folder / "publish", folder / "globe.safetensors"
    shutil.rmtree(data, ignore_errors=True)
    bodies = [(folder / f"{number}.safetensors").read_bytes() for number in range(FEW)]
    with coordinator(data, initial, processes, outer, count) as running:
        send(running.port, bodies[1:], 0, 1)
    journal = data / "rounds" / "000000" / "journal.jsonl"
    if count > FEW:
        _multiply(journal, count - FEW)
    with coordinator(data, initial, processes, outer, count) as running:
        running.settle()
        send(running.port, bodies[:1], 0, 1)
        answered = 1000 * time.time()
        if running.get("/durum")["tur"] != 1:
            raise RuntimeError("the round wasn't published when its last result was answered")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    accepted = [line["at"] for line in lines if line["event"] == "accepted"]
    if len(accepted) != count:
        raise RuntimeError(f"{len(accepted)} results instead of {count}")
    return float(answered - accepted[-1])


def _multiply(journal: Path, more: int) -> None:
    """Give a stopped coordinator's open round more results: hard links to those it has, under other names.

    1,000 files of 40 MB of their own would need 40 GB of disk; the coordinator reads each of these all the same.
    """
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    recorded = [line for line in lines if line["event"] == "accepted"]
    with journal.open("a") as file:
        for number in range(more):
            line = recorded[number % len(recorded)]
            name = f"{number:032x}.safetensors"
            results = journal.parent / "results"
            os.link(results / line["result"]["file"], results / name)
            result = {**line["result"], "worker": f"linked-{number}", "file": name}
            file.write(json.dumps({**line, "result": result}, separators=(",", ":")) + "\n")


def _write(folder: Path) -> float:
    """Milliseconds to write, hash and fsync an adapter once."""
    body, path = (folder / "globe.safetensors").read_bytes(), folder / "written"
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        file.write(body)
        hashlib.sha256(body).digest()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    path.unlink()
    return 1000 * seconds
