"""SIGTERM, SIGINT and SIGHUP: the first asks the worker to finish in order, the second to stop at once."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator


class Interrupt:
    """Flags for the running code to look at: a handler can't wait for a lock that the interrupted code holds."""

    def __init__(self) -> None:
        self.requested = False
        self.urgent = False
        self._has_job = False

    def install(self) -> None:
        """Handles the signals from now on, and lets through what a parent process had blocked."""
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup wants the worker to go on
                signal.signal(signal.SIGHUP, lambda _number, _frame: self.ask())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.ask())

    def ask(self) -> None:
        """Called for every signal.

        Without a job to end, the second ends the program whatever it waits for; with one, the third does.
        """
        if self.urgent or (self.requested and not self._has_job):
            raise SystemExit(1)
        self.urgent = self.requested
        self.requested = True

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """While a job's processes have to be ended before the program is."""
        self._has_job = True
        try:
            yield
        finally:
            self._has_job = False
