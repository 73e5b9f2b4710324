"""A job's output on its way past the engine: a named pipe that the container and the worker both see.

The engine's own ways were measured and don't do: its log drivers change what is written (`local` drops the end of every
line of 16 KiB and more, `json-file` what isn't UTF-8) at the cost of the engine's CPU, and an attached reader that
stalls makes the engine hang, kills included. A pipe takes bytes as they come and stalls nobody but the job.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

NAME = "pipe"
# As in a pipeline, some more may wait than what is being read.
PIPE_BYTES = 1 << 20
LOOK_SECONDS = 1.0
SMALL_BYTES = 4096
GATHER_SECONDS = 0.005


class PipeOutput:
    """The reading end. `ended` says whether everything that could write has; `wake` is called when that changes."""

    def __init__(self, folder: Path, ended: Callable[[], bool]) -> None:
        self._ended = ended
        self._dribbles = False
        self.passed = 0
        """Bytes read so far."""
        path = folder / NAME
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        # For the container's user, who may be another: the folder above keeps everybody else out.
        path.chmod(0o622)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # With a writer of our own the pipe isn't at its end between two of the job's.
        self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._woken, self._waking = os.pipe()
        self._open: tuple[int, ...] = (self._reader, self._writer, self._woken, self._waking)
        self._lock = threading.Lock()
        self._poll = select.poll()
        for descriptor in (self._reader, self._woken):
            self._poll.register(descriptor, select.POLLIN)
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):
                fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def wake(self) -> None:
        with self._lock:
            if self._open:
                os.write(self._waking, b".")

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, at least one; none at the end."""
        while True:
            ended = self._ended()
            if self._dribbles:
                time.sleep(GATHER_SECONDS)  # one reading takes what a crowd of small writes leaves meanwhile
            data = self._waiting(size)
            if data is None and not ended:
                self._poll.poll(LOOK_SECONDS * 1000)
                continue
            self._dribbles = data is not None and len(data) < SMALL_BYTES
            self.passed += len(data or b"")
            return data or b""

    def _waiting(self, size: int) -> bytes | None:
        """What is in the pipe; None when that is nothing, and no bytes when it is closed."""
        with self._lock:
            try:
                return os.read(self._reader, size) if self._open else b""
            except BlockingIOError:
                return None

    def close(self) -> None:
        """May be called again, by any thread: a number that is closed twice may be somebody else's by then."""
        with self._lock:
            open_ones, self._open = self._open, ()
            for descriptor in open_ones:
                os.close(descriptor)


def can_pipe() -> bool:
    """Whether this system has named pipes."""
    return hasattr(os, "mkfifo")
