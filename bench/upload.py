"""Upload of 64 MiB in 8 files, durable on answer, beside a plain endpoint that hashes, writes and fsyncs a file."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from bench import plain
from bench.stack import platform
from mingora.manifest import build
from mingora.transfer import upload_files
from mingora.transport import Transport

FILES = 8
FILE_BYTES = 8 << 20
ROUNDS = 5
THREADS = 8


def run() -> dict[str, Any]:
    """Median MiB/s over rounds in turn: ours, the endpoint's, and the endpoint's own bound without HTTP."""
    ours, comparator, bound = [], [], []
    total = FILES * FILE_BYTES / 2**20
    with platform() as stack, plain.server(stack.folder / "plain", stack.processes) as (host, port):
        transport = Transport(stack.url, token=stack.token())
        for number in range(ROUNDS):
            bodies = [os.urandom(FILE_BYTES) for _ in range(FILES)]
            folder = stack.folder / f"files-{number}"
            folder.mkdir()
            for index, body in enumerate(bodies):
                (folder / f"{index}.bin").write_bytes(body)
            entries = build(folder)
            started = time.monotonic()
            upload_files(transport, entries, kind="input", threads=THREADS)
            ours.append(total / (time.monotonic() - started))
            comparator.append(total / plain.put(host, port, bodies, THREADS))
            bound.append(total / plain.bound(stack.folder / f"bound-{number}", bodies, THREADS))
    rate, other, physical = statistics.median(ours), statistics.median(comparator), statistics.median(bound)
    return {
        "uploadMiBps": round(rate),
        "plainMiBps": round(other),
        "ratio": round(rate / other, 2),
        "boundMiBps": round(physical),
        "plainToBound": round(other / physical, 2),
        "valid": other / physical >= plain.LEAST_TO_BOUND,
    }
