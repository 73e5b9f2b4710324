"""A job's output on its way to the platform: pipe → file on disk → chunks with offsets (WORK-6).

The job never waits for the network, memory stays flat, and bytes stay what they are.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from mingora.errors import ApiError, MingoraError
from mingora_worker.api import MAX_CHUNK, lease_gone, transient
from mingora_worker.backoff import Backoff

READ_BYTES = 64 * 1024
# A first byte after silence is sent this soon; a stream that goes on is sent in steps of STEADY_SECONDS.
PROMPT_SECONDS = 0.2
STEADY_SECONDS = 1.0

Put = Callable[[int, bytes, bool], int]
"""Sends `(offset, bytes, truncated)` and returns the acknowledged end."""


class Spool:
    """The log as a file: one thread appends, another reads. Bytes past `cap` are dropped and remembered as such."""

    def __init__(self, path: Path, cap: int) -> None:
        self._cap = cap
        self._file = path.open("a+b", buffering=0)
        with contextlib.suppress(OSError):
            path.chmod(0o600)
        self.size = os.fstat(self._file.fileno()).st_size
        self.truncated = False
        self.sealed = False
        self.error: OSError | None = None
        self._changed = threading.Condition()

    def append(self, data: bytes) -> None:
        """Keeps what fits. A full disk is kept in `error`; the job must be stopped then, but its pipe goes on."""
        with self._changed:
            if self.sealed:
                return
            kept = data[: self._cap - self.size]
            self.truncated = self.truncated or len(kept) < len(data)
            view = memoryview(kept)
            try:
                while view and self.error is None:
                    written = self._file.write(view) or 0
                    self.size += written
                    view = view[written:]
            except OSError as error:
                self.error = error
            self._changed.notify_all()

    def seal(self) -> None:
        """No more bytes are taken."""
        with self._changed:
            self.sealed = True
            self._changed.notify_all()

    def read(self, offset: int) -> bytes:
        """Up to one chunk from `offset` on."""
        with self._changed:
            if self._file.closed:
                return b""
            self._file.seek(offset)
            return self._file.read(min(MAX_CHUNK, self.size - offset)) or b""

    def wait(self, offset: int, enough: int, timeout: float) -> None:
        """Waits until `enough` bytes past `offset` are there, or the log is sealed."""
        with self._changed:
            self._changed.wait_for(lambda: self.sealed or self.size - offset >= enough, timeout)

    def close(self) -> None:
        self.seal()
        with self._changed:
            self._file.close()


class Output(Protocol):
    """A job's output as bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, at least one; none at the end."""

    def close(self) -> None: ...


class Pump:
    """Reads a job's output into a spool in a thread of its own, to its end."""

    def __init__(self, pipe: Output, spool: Spool) -> None:
        self._pipe = pipe
        self._spool = spool
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError), contextlib.closing(self._pipe):
            while data := self._pipe.read(READ_BYTES):
                self._spool.append(data)

    def finish(self, timeout: float) -> None:
        """Takes what is left in the pipe and seals the log.

        A process that escaped and keeps the pipe open is not waited for longer than `timeout` seconds.
        """
        self._thread.join(timeout)
        self._spool.seal()


class Sender:
    """Sends a spool in order, across failures, until all of it is acknowledged.

    `resume`: asks first how much the platform has, for a log that another sender began to send.
    """

    def __init__(self, spool: Spool, put: Put, *, resume: bool, on_failure: Callable[[MingoraError], None]) -> None:
        self._spool = spool
        self._put = put
        self._on_failure = on_failure
        self._backoff = Backoff()
        self._stopping = threading.Event()
        self._last_sent = 0.0
        self._told_truncated = False
        self._asking = resume
        self.acked = 0
        self.failure: MingoraError | None = None
        self.done = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Returns when all is acknowledged, sending makes no sense any more, or `stop` was called."""
        try:
            while not self._stopping.is_set() and not self._finished():
                try:
                    self._step()
                    self._backoff.succeeded()
                except MingoraError as error:
                    if not self._recover(error):
                        return
        finally:
            self.done.set()

    def _finished(self) -> bool:
        spool = self._spool
        with_all = spool.sealed and self.acked >= spool.size and not self._asking
        return with_all and (self._told_truncated or not spool.truncated)

    def _step(self) -> None:
        if not self._asking:
            self._gather()
        data = b"" if self._asking else self._spool.read(self.acked)
        truncated = self._spool.truncated and self.acked + len(data) >= self._spool.size
        if not data and not self._asking and not (truncated and not self._told_truncated):
            return
        self.acked = self._accept(self._put(self.acked, data, truncated))
        self._last_sent = time.monotonic()
        self._asking = False
        self._told_truncated = self._told_truncated or truncated

    def _gather(self) -> None:
        """Waits for bytes, then a little longer for more, so that a chatty job makes few requests."""
        self._spool.wait(self.acked, 1, timeout=1.0)
        if 0 < self._spool.size - self.acked < MAX_CHUNK and not self._spool.sealed:
            quiet = time.monotonic() - self._last_sent
            delay = PROMPT_SECONDS if quiet > STEADY_SECONDS else STEADY_SECONDS - quiet
            self._spool.wait(self.acked, MAX_CHUNK, timeout=max(PROMPT_SECONDS, delay))

    def _accept(self, acked: int) -> int:
        return min(max(0, acked), self._spool.size)

    def _recover(self, error: MingoraError) -> bool:
        if isinstance(error, ApiError) and error.code == "log_gap":
            with contextlib.suppress(TypeError, ValueError):
                self.acked = self._accept(int(error.fields["acked"]))
                self._asking = False
            self._stopping.wait(PROMPT_SECONDS)
            return True
        if transient(error):
            self._on_failure(error)
            self._stopping.wait(self._backoff.failed(error))
            return True
        self.failure = error
        if not lease_gone(error):
            self._on_failure(error)
        return False
