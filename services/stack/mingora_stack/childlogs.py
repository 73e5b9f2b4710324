"""Keeps what the stack's processes print, in files of bounded size."""

from __future__ import annotations

import contextlib
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024


class BoundedLog:
    """A log file that becomes ``NAME.1`` when it is full, so that two files of ``limit`` bytes are kept at most."""

    def __init__(self, path: Path, limit: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._size = path.stat().st_size if path.exists() else 0

    def write(self, line: bytes) -> None:
        """Append a line; raises OSError when the disk is full."""
        if self._size and self._size + len(line) > self._limit:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._size = 0
        with open(self._path, "ab") as file:
            file.write(line)
        self._size += len(line)


class ChildLogs:
    """The logs of the stack's processes, by name; copied to stderr too when ``verbose``."""

    def __init__(self, folder: Path, *, verbose: bool) -> None:
        self._folder = folder
        self._verbose = verbose
        self._own = BoundedLog(folder / "stack.log")

    def follow(self, name: str, pipe: BinaryIO) -> threading.Thread:
        """Take all that comes out of ``pipe`` until it ends, in a thread of its own."""
        thread = threading.Thread(target=self._pump, args=(name, pipe), name=f"log-{name}", daemon=True)
        thread.start()
        return thread

    def note(self, text: str) -> None:
        """Tell what happened, on stderr and in ``stack.log``; a closed terminal or a full disk doesn't matter."""
        with contextlib.suppress(OSError):
            self._own.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n".encode())
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a process's log."""
        data = self.path(name).read_bytes() if self.path(name).exists() else b""
        return b"\n".join(data[-16_384:].splitlines()[-lines:]).decode("utf-8", "replace")

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _pump(self, name: str, pipe: BinaryIO) -> None:
        log = BoundedLog(self.path(name))
        with pipe:
            while line := pipe.readline(MAX_LINE_BYTES):
                # Losing log lines (a full disk, a closed terminal) must not block the process that prints them.
                with contextlib.suppress(OSError):
                    log.write(line)
                if self._verbose:
                    with contextlib.suppress(OSError):
                        sys.stderr.buffer.write(f"[{name}] ".encode() + line)
                        sys.stderr.buffer.flush()
