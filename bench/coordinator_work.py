"""Time and memory of pieces of work in this process, told as JSON: for the children that aggregate."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SAMPLE_SECONDS = 0.001
KIB = 1024

Work = Callable[[], object]


def tell(works: Mapping[str, Work], repeats: int) -> None:
    """Do each piece of work once for its memory, and as often as said for its time; print both.

    Of each name: ``seconds`` of every repeat, and ``bytes`` of anonymous memory at most beyond what there was before.
    """
    found = {}
    for name, work in works.items():
        peak = _peak(work)
        found[name] = {"bytes": peak, "seconds": [_seconds(work) for _ in range(repeats)]}
    json.dump(found, sys.stdout)


def _seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak(work: Work) -> int:
    before, most, done = _anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(SAMPLE_SECONDS):
            most = max(most, _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(0, most - before)


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    raise RuntimeError("this system doesn't tell a process's anonymous memory")
