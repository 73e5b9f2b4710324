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
ROUNDS = 7
THREADS = 8
# One of each a core: so the endpoint is near its bound.
CONNECTIONS = 2
PROCESSES = 2


def run() -> dict[str, Any]:
    """Median MiB/s over rounds in turn: ours, the endpoint's, and the endpoint's own bound without HTTP.

    The endpoint runs in two processes; in one, as the stack's server does, it is further from what the machine can do.
    """
    ours, one, two, bound = [], [], [], []
    total = FILES * FILE_BYTES / 2**20
    with (
        platform() as stack,
        plain.server(stack.folder / "one", stack.processes) as single,
        plain.server(stack.folder / "two", stack.processes, PROCESSES) as double,
    ):
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
            one.append(total / plain.put(*single, bodies, CONNECTIONS))
            plain.clear(stack.folder / "one")
            two.append(total / plain.put(*double, bodies, CONNECTIONS))
            plain.clear(stack.folder / "two")
            bound.append(total / plain.bound(stack.folder / f"bound-{number}", bodies, CONNECTIONS))
    rate, other, physical = statistics.median(ours), statistics.median(two), statistics.median(bound)
    return {
        "uploadMiBps": round(rate),
        "plainMiBps": round(other),
        "ratio": round(rate / other, 2),
        "plainOneProcessMiBps": round(statistics.median(one)),
        "ratioToOneProcess": round(rate / statistics.median(one), 2),
        "boundMiBps": round(physical),
        "plainToBound": round(other / physical, 2),
        "valid": other / physical >= plain.LEAST_TO_BOUND,
    }
