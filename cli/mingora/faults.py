"""Named moments at which a test ends this program, as `kill -9` would. Nothing happens without the tests' settings.

A file named like a moment in the folder MINGORA_TEST_FAULTS arms it, once; MINGORA_TESTING=1 must be set as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

program = "mingora"

_folder = os.environ.get("MINGORA_TEST_FAULTS") if os.environ.get("MINGORA_TESTING") == "1" else None
_passed: Counter[str] = Counter()
_lock = threading.Lock()
_ID = re.compile(r"/(?:[a-z]{3,5}_[A-Za-z0-9_-]+|[0-9]+)(?=/|$)")


def point(moment: str) -> None:
    """Pass the moment. Ids and numbers in it stand for any other."""
    if _folder is None:
        return
    with _lock:
        name = f"{program}.{_ID.sub('/:', moment)}".replace("/", "@")
        _passed[name] += 1
        name = f"{name}#{_passed[name]}"
        record = Path(_folder) / "record"
        if record.exists():
            with record.open("a", encoding="utf-8") as file:
                file.write(name + "\n")
        with contextlib.suppress(FileNotFoundError):
            (Path(_folder) / name).unlink()
            os.kill(os.getpid(), signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
