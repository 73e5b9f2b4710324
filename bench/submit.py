"""From the CLI's exec to the child's first instruction on an idle worker, beside what a 15 s poll would give."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.stack import Platform, percentile, platform

RUNS = 30
FILES = 20
# Its first instruction notes the time.
PROGRAM = """import time
began = time.time()
import os
os.makedirs("results", exist_ok=True)
open("results/began", "w").write(repr(began))
"""
FILE_BYTES = 52_428  # 20 files make 1 MiB
POLL_SECONDS = 15.0  # a worker that polled would see a job after 7.5 s on average


def run() -> dict[str, Any]:
    """Median and 95th percentile in seconds over submissions of a new project of 20 files, 1 MiB together."""
    with platform() as stack:
        stack.worker()
        taken = [_once(stack, number) for number in range(RUNS)]
    p50, p95 = percentile(taken, 0.5), percentile(taken, 0.95)
    return {
        "runs": RUNS,
        "p50Seconds": round(p50, 3),
        "p95Seconds": round(p95, 3),
        "pollAverageSeconds": POLL_SECONDS / 2,
        "ratioToPoll": round(p50 / (POLL_SECONDS / 2), 3),
    }


def _once(stack: Platform, number: int) -> float:
    project = stack.folder / f"project-{number}"
    _make(project, number)
    started = time.time()
    command = [sys.executable, "-m", "mingora", "submit", str(project), "--json"]
    answer = subprocess.run(
        command, env=stack.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    ).stdout
    job = json.loads(answer)["job"]["id"]
    stack.mingora("wait", job, "--timeout", "60")
    stack.mingora("download", job, "--output", str(project / "out"))
    return float((project / "out" / "began").read_text()) - started


def _make(project: Path, number: int) -> None:
    project.mkdir()
    job = {"schemaVersion": 1, "name": "bench", "command": ["python", "main.py"]}
    (project / "job.json").write_text(json.dumps(job))
    (project / "main.py").write_text(PROGRAM)
    for index in range(FILES - 1):
        (project / f"data-{index}.bin").write_bytes(f"{number}-{index} ".encode() * (FILE_BYTES // 6))
