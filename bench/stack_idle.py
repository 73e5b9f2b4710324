"""What the embedded stack takes when nobody asks for anything: start-up time, memory, CPU."""

from __future__ import annotations

import time
from typing import Any

import psutil

from bench.stack import platform

SECONDS = 20


def run() -> dict[str, Any]:
    """Seconds to ready, MiB of private memory (USS) over all processes, percent of one core while idle for 20 s."""
    with platform() as stack:
        family = [psutil.Process(stack.supervisor)]
        family += family[0].children(recursive=True)
        before = sum(sum(process.cpu_times()[:2]) for process in family)
        time.sleep(SECONDS)
        after = sum(sum(process.cpu_times()[:2]) for process in family)
        return {
            "secondsToReady": round(stack.seconds_to_start, 2),
            "processes": len(family),
            "memoryMiB": round(sum(process.memory_full_info().uss for process in family) / 2**20),
            "cpuPercentOfACore": round((after - before) / SECONDS * 100, 2),
        }
