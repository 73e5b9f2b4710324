"""From the CLI's exec to the child's first instruction on an idle worker, beside what a 15 s poll would give."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.old_jobs import copy_job
from bench.stack import Platform, percentile, platform
from devtools.venv import ROOT

RUNS = 100
FAR_RUNS = 30
OLD_JOBS = 10_000
ROUND_TRIP_MS = 50
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
    """50th and 95th percentile in seconds over submissions of a new project of 20 files, 1 MiB together.

    Directly, with 10,000 old jobs in the database; and with client and worker behind a proxy of 50 ms round trip.
    """
    with platform() as stack:
        stack.worker()
        first = _submit(stack, stack.env, _make(stack.folder, 0))
        copy_job(stack.folder / "data" / "platform.sqlite", first, OLD_JOBS)
        near = [_seconds(stack, stack.env, number) for number in range(1, 1 + RUNS)]
    with platform() as stack:
        far_env = _far(stack)
        stack.worker(far_env)
        far = [_seconds(stack, far_env, number) for number in range(FAR_RUNS)]
    return {
        "oldJobs": OLD_JOBS,
        "runs": RUNS,
        "p50Seconds": round(percentile(near, 0.5), 3),
        "p95Seconds": round(percentile(near, 0.95), 3),
        "pollAverageSeconds": POLL_SECONDS / 2,
        "ratioToPoll": round(percentile(near, 0.5) / (POLL_SECONDS / 2), 3),
        "roundTripMs": ROUND_TRIP_MS,
        "farRuns": FAR_RUNS,
        "farP50Seconds": round(percentile(far, 0.5), 3),
        "farP95Seconds": round(percentile(far, 0.95), 3),
    }


def _far(stack: Platform) -> dict[str, str]:
    """The environment of a client, and a login, that reach the stack through the slow proxy alone."""
    port = stack.url.rsplit(":", 1)[1]
    proxy = stack.processes.start(
        sys.executable, "-m", "bench.delay", port, str(ROUND_TRIP_MS), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert proxy.stdout is not None
    return stack.env | {
        "MINGORA_URL": f"http://127.0.0.1:{int(proxy.stdout.readline())}",
        "MINGORA_TOKEN": stack.token(),
    }


def _seconds(stack: Platform, env: dict[str, str], number: int) -> float:
    """From the submit's exec to the job's first instruction."""
    project = _make(stack.folder, number)
    started = time.time()
    job = _submit(stack, env, project)
    stack.mingora("download", job, "--output", str(project / "out"))
    return float((project / "out" / "began").read_text()) - started


def _submit(stack: Platform, env: dict[str, str], project: Path) -> str:
    command = [sys.executable, "-m", "mingora", "submit", str(project), "--json"]
    answer = subprocess.run(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    ).stdout
    job = str(json.loads(answer)["job"]["id"])
    stack.mingora("wait", job, "--timeout", "60")
    return job


def _make(folder: Path, number: int) -> Path:
    project = folder / f"project-{number}"
    project.mkdir()
    job = {"schemaVersion": 1, "name": "bench", "command": ["python", "main.py"]}
    (project / "job.json").write_text(json.dumps(job))
    (project / "main.py").write_text(PROGRAM)
    for index in range(FILES - 1):
        (project / f"data-{index}.bin").write_bytes(f"{number}-{index} ".encode() * (FILE_BYTES // 6))
    return project
