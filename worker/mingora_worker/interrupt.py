"""SIGTERM and SIGINT: the first asks the worker to finish in order, the second to stop at once."""

from __future__ import annotations

import signal


class Interrupt:
    """Only flags are set in the handler, so that it can't wait for a lock that the interrupted code holds."""

    def __init__(self) -> None:
        self.requested = False
        self.urgent = False

    def install(self) -> None:
        """Handles both signals from now on, and lets through what a parent process had blocked."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.ask())

    def ask(self) -> None:
        self.urgent = self.requested
        self.requested = True
