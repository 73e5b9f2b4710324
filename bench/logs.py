"""A job's log of 100 MB, byte for byte, beside the plain endpoint taking the same bytes.

And how much a job that computes while it logs is slowed, beside the same program with its output in a file.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import plain
from bench.stack import Platform, platform

LINES = 1_000_000
LINE = "a line of a training log with some figures 0.123456 and more of them up to one hundred bytes, all told"
PROGRAM = f"import sys\nfor _ in range({LINES}): sys.stdout.write({LINE + chr(10)!r})\n"
SIZE = LINES * (len(LINE) + 1)

# 100 MB over a run of some 10 s: each step computes, then writes its lines. It tells how long it took.
STEPS = 100
STEADY = f"""import hashlib, os, sys, time
began = time.monotonic()
data = bytes(1 << 20)
for _ in range({STEPS}):
    for _ in range(150):
        hashlib.sha256(data).digest()
    sys.stdout.write({(LINE + chr(10))!r} * {LINES // STEPS})
sys.stdout.flush()
took = time.monotonic() - began
os.makedirs("results", exist_ok=True)
open("results/took", "w").write(repr(took))
"""
PAIRS = 3
# The comparator takes the same bytes over one connection, as a log comes, in pieces of some 8 MiB.
LINES_OF_A_PIECE = 80_000
ROUNDS = 5


def run() -> dict[str, Any]:
    """Seconds from the child's start to the last byte acknowledged (job succeeded), MB/s, slowdown in percent."""
    with platform() as stack, plain.server(stack.folder / "plain", stack.processes) as (host, port):
        stack.worker()
        job = _run(stack, _project(stack.folder / "fast", PROGRAM))
        lines = [json.loads(line) for line in stack.mingora("events", job, "--json").splitlines()]
        at = {line["event"]["type"]: datetime.fromisoformat(line["event"]["at"]) for line in lines}
        seconds = (at["attempt.finished"] - at["attempt.started"]).total_seconds()
        started = time.monotonic()
        log = stack.mingora("logs", job)
        read = time.monotonic() - started
        if hashlib.sha256(log.encode()).digest() != hashlib.sha256((LINE + "\n").encode() * LINES).digest():
            raise RuntimeError("the log isn't byte for byte what the job wrote")
        pieces = [(LINE + "\n").encode() * LINES_OF_A_PIECE] * (LINES // LINES_OF_A_PIECE)
        comparators, bounds = [], []
        for number in range(ROUNDS):
            comparators.append(plain.put(host, port, pieces, 1))
            plain.clear(stack.folder / "plain")
            bounds.append(plain.bound(stack.folder / f"bound-{number}", pieces, 1))
        comparator, bound = statistics.median(comparators), statistics.median(bounds)
        slowdowns = [_slowdown(stack, number) for number in range(PAIRS)]
    rate, other = SIZE / 1e6 / seconds, sum(map(len, pieces)) / 1e6 / comparator
    return {
        "megabytes": round(SIZE / 1e6, 1),
        "runAndAcknowledgeSeconds": round(seconds, 2),
        "logMBps": round(rate, 1),
        "plainMBps": round(other, 1),
        "ratio": round(rate / other, 2),
        "plainToBound": round(bound / comparator, 2),
        "valid": bound / comparator >= plain.LEAST_TO_BOUND,
        "readBackMBps": round(SIZE / 1e6 / read, 1),
        "slowdownPercent": round(statistics.median(slowdowns), 1),
    }


def _slowdown(stack: Platform, number: int) -> float:
    """Percent by which the computing, logging program takes longer as a job than with its output in a file."""
    project = _project(stack.folder / f"steady-{number}", STEADY)
    with (stack.folder / f"alone-{number}").open("wb") as output:
        subprocess.run([sys.executable, "main.py"], cwd=project, stdout=output, check=True)
    alone = float((project / "results" / "took").read_text())
    (project / "results" / "took").unlink()
    stack.mingora("download", _run(stack, project), "--output", str(project / "out"))
    return (float((project / "out" / "took").read_text()) / alone - 1) * 100


def _project(folder: Path, program: str) -> Path:
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({"schemaVersion": 1, "name": "log", "command": ["python", "main.py"]}))
    (folder / "main.py").write_text(program)
    return folder


def _run(stack: Platform, project: Path) -> str:
    job = str(json.loads(stack.mingora("submit", str(project), "--json"))["job"]["id"])
    stack.mingora("wait", job, "--timeout", "300")
    return job
