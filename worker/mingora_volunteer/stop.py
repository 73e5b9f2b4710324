"""Ctrl-C and SIGTERM: the round at hand is finished, or abandoned, as asked; a second signal always abandons it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from mingora_volunteer.texts import _


class Abandoned(BaseException):
    """The round is given up. Nothing on the way may take it for an error of its own."""


class Stop:
    """`requested` is for the loop to look at; `at_once` makes the first signal abandon the round."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.requested = False
        self._at_once = at_once
        self._notice = _("Stopping after this round. Ctrl-C once more abandons it.") + "\n"
        self._over = False

    def install(self) -> None:
        """Handles the signals from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self.ask())
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup wants it to go on
            signal.signal(signal.SIGHUP, lambda _number, _frame: self.ask())

    def ask(self) -> None:
        """One signal. Raises `Abandoned` wherever the program is when the round isn't to be finished."""
        if self._over:
            return
        if self._at_once or self.requested:
            raise Abandoned
        self.requested = True
        with contextlib.suppress(OSError):  # print() can't be called from within print()
            os.write(2, ("\n" * os.isatty(2) + self._notice).encode(errors="replace"))

    def over(self) -> None:
        """The program ends by itself now: further signals have nothing to stop."""
        self._over = True
