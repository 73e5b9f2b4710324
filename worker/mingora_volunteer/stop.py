"""Ctrl-C and SIGTERM: what is at hand is finished, or abandoned, as asked; a second signal always abandons it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


class Abandoned(BaseException):
    """The work is given up. Nothing on the way may take it for an error of its own."""


class Stop:
    """`requested` is for the loop to look at; `at_once` makes the first signal abandon the round.

    `finishing` is what a first signal says while there is work to finish; None while there is none, as when the model
    is loaded or the coordinator waited for: then the first one ends the program wherever it is.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.requested = False
        self.finishing: str | None = None
        self._at_once = at_once
        self._over = False
        self._loading: str | None = None

    def install(self) -> None:
        """Handles the signals from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self.ask())
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup wants it to go on
            signal.signal(signal.SIGHUP, lambda _number, _frame: self.ask())

    def ask(self) -> None:
        """One signal. Raises `Abandoned` wherever the program is when nothing is to be finished."""
        if self._over:
            return
        if self._loading is not None:
            _tell(self._loading)
            os._exit(0)
        notice = self.finishing
        if self._at_once or self.requested or notice is None:
            raise Abandoned
        self.requested = True
        _tell(notice)

    @contextlib.contextmanager
    def loading(self, notice: str) -> Iterator[None]:
        """While libraries are imported a signal ends the process without further ado: an exception amidst the
        initialisation of PyTorch's C++ makes it abort. There is nothing to clean up yet."""
        self._loading = notice
        try:
            yield
        finally:
            self._loading = None

    def over(self) -> None:
        """The program ends by itself now: further signals have nothing to stop."""
        self._over = True


def _tell(notice: str) -> None:
    with contextlib.suppress(OSError):  # print() can't be called from within print()
        os.write(2, ("\n" * os.isatty(2) + notice + "\n").encode(errors="replace"))
