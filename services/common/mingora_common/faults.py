"""Named moments at which a test ends a process, as ``kill -9`` or a power cut would.

The moments lie in what every service shares (requests, transactions, pins, hints, content), so a new route or task has
its own without a line of code: ``api.jobs.submit/commit.after#2`` is the second commit of a submission, just done.
Without the tests' setting a point costs one comparison; with it, but outside a test, the services refuse to start.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path

SETTING = "MINGORA_TEST_FAULTS"
"""A folder. A file named like a point arms it, once; its text is the process to kill, none for the one that passes."""
TESTING = "MINGORA_TESTING"
RECORD = "record"
"""A file of this name in the folder gets a line for each point that is passed."""

_folder: Path | None = Path(os.environ[SETTING]) if SETTING in os.environ else None
_place: ContextVar[tuple[str, Counter[str]] | None] = ContextVar("place", default=None)


def refusal(environ: Mapping[str, str]) -> str | None:
    """Why a service with these settings mustn't start, or None."""
    if SETTING in environ and environ.get(TESTING) != "1":
        return f"{SETTING} ends processes and is for tests only: unset it"
    return None


def entered(place: str) -> None:
    """This thread begins something: a request, a task."""
    if _folder is not None:
        _place.set((place, Counter()))
        point("begun")


def point(moment: str) -> None:
    """Pass the point ``moment`` of what this thread is doing."""
    place = None if _folder is None else _place.get()
    if _folder is None or place is None:
        return
    where, passed = place
    passed[moment] += 1
    name = f"{where}/{moment}#{passed[moment]}".replace("/", "@")
    if (_folder / RECORD).exists():
        with (_folder / RECORD).open("a", encoding="utf-8") as record:
            record.write(name + "\n")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        victim = (_folder / name).read_text(encoding="utf-8")
        (_folder / name).unlink()
        os.kill(int(victim) if victim else os.getpid(), signal.SIGKILL)
