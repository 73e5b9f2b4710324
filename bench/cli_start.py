"""How long `mingora --version` takes, beside Python that does nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from devtools.venv import ROOT

RUNS = 20


def run() -> dict[str, Any]:
    """Median milliseconds of both, run in turn."""
    ours, nothing = [], []
    for _ in range(RUNS):
        ours.append(_seconds(str(ROOT / "cli" / "mingora.py"), "--version"))
        nothing.append(_seconds("-c", "pass"))
    version, empty = statistics.median(ours) * 1000, statistics.median(nothing) * 1000
    return {"versionMs": round(version, 1), "emptyPythonMs": round(empty, 1), "ratio": round(version / empty, 2)}


def _seconds(*words: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-S", *words], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started
