"""Waiting for a signal without polling and without a gap in which one could be missed."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections.abc import Iterator
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Whether a stop was asked for, and a sleep that any signal ends (a child's death among them)."""

    def __init__(self) -> None:
        self.stopping = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        """Take the signals over until the block ends. One that is ignored already (nohup) stays so."""
        before = {number: signal.getsignal(number) for number in (*STOP, signal.SIGCHLD)}
        for number in STOP:
            if number == signal.SIGINT or before[number] != signal.SIG_IGN:
                signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, _nothing)
        wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        try:
            yield self
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._reader.close()
            self._writer.close()

    def wait(self, seconds: float | None) -> None:
        """Sleep until a signal comes, at most ``seconds``."""
        select.select([self._reader], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler, so that the wake-up descriptor is written; the signal itself needs nothing."""
