"""A job's log of 50 MB, byte for byte, beside the plain endpoint taking the same bytes in 1 MiB pieces."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from bench import plain
from bench.stack import platform

LINES = 500_000
LINE = "a line of a training log with some figures 0.123456 and more of them up to one hundred bytes, all told"
PROGRAM = f"import sys\nfor _ in range({LINES}): sys.stdout.write({LINE + chr(10)!r})\n"
SIZE = LINES * (len(LINE) + 1)


def run() -> dict[str, Any]:
    """Seconds from the child's start to the last byte acknowledged (job succeeded), and MB/s beside the comparator."""
    with platform() as stack, plain.server(stack.folder / "plain", stack.processes) as (host, port):
        stack.worker()
        project = stack.folder / "project"
        project.mkdir()
        (project / "job.json").write_text(
            json.dumps({"schemaVersion": 1, "name": "log", "command": ["python", "main.py"]})
        )
        (project / "main.py").write_text(PROGRAM)
        job = json.loads(stack.mingora("submit", str(project), "--json"))["job"]["id"]
        stack.mingora("wait", job, "--timeout", "300")
        lines = [json.loads(line) for line in stack.mingora("events", job, "--json").splitlines()]
        at = {line["event"]["type"]: line["event"]["at"] for line in lines}
        seconds = _seconds(at["attempt.started"], at["attempt.finished"])
        started = time.monotonic()
        log = stack.mingora("logs", job)
        read = time.monotonic() - started
        if hashlib.sha256(log.encode()).digest() != hashlib.sha256((LINE + "\n").encode() * LINES).digest():
            raise RuntimeError("the log isn't byte for byte what the job wrote")
        pieces = [(LINE + "\n").encode() * 9900] * (SIZE // (9900 * (len(LINE) + 1)))
        comparator = plain.put(host, port, pieces, 1)
    rate, other = SIZE / 1e6 / seconds, sum(map(len, pieces)) / 1e6 / comparator
    return {
        "megabytes": round(SIZE / 1e6, 1),
        "runAndAcknowledgeSeconds": round(seconds, 2),
        "logMBps": round(rate, 1),
        "plainMBps": round(other, 1),
        "ratio": round(rate / other, 2),
        "readBackMBps": round(SIZE / 1e6 / read, 1),
    }


def _seconds(start: str, end: str) -> float:
    from datetime import datetime

    first, last = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (start, end))
    return (last - first).total_seconds()
