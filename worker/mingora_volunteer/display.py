"""What the volunteer sees: a line for each event, and on a terminal a bar for what is going on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from mingora.errors import ApiError, MingoraError, TransportError
from mingora.output import bar_text, harmless, size_text
from mingora_volunteer.texts import _

REDRAW_SECONDS = 0.1
SAME_TROUBLE_SECONDS = 60.0
PLAIN_SECONDS = 60.0


class Display:
    """Writes to `stream`, by default stderr; whoever closed it never stops the training."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._drawn: float | None = None
        self._trouble: tuple[str, float] | None = None
        self._away = False
        self._plain = ("", 0.0)  # what goes on, and when a line last told of it

    def note(self, text: str) -> None:
        """One line."""
        self._write(f"{time.strftime('%H:%M:%S')}  {one_line(text)}\n")

    def complain(self, error: MingoraError) -> None:
        """Why the program ends, and the remedy."""
        self._write(f"mingora-volunteer: {one_line(error.message)}\n")
        if error.hint:
            self._write(f"  {one_line(error.hint)}\n")

    def trouble(self, error: MingoraError) -> None:
        """Something waiting may cure; the same again not before a minute has passed."""
        now = self._clock()
        self._away |= isinstance(error, TransportError) or (isinstance(error, ApiError) and error.status >= 500)
        if self._trouble is None or self._trouble[0] != error.message or now - self._trouble[1] > SAME_TROUBLE_SECONDS:
            self._trouble = (error.message, now)
            self.note(_("{reason} Trying again.").format(reason=_sentence(error.message)))

    def relief(self) -> None:
        """The trouble is over; says so when the coordinator was away in it."""
        self._trouble = None
        if self._away:
            self._away = False
            self.note(_("The coordinator answers again."))

    def downloading(self, done: int, total: int) -> None:
        self._bar(_("Downloading"), done, total, f"{size_text(done)} / {size_text(total)}")

    def uploading(self, done: int, total: int) -> None:
        self._bar(_("Uploading"), done, total, f"{size_text(done)} / {size_text(total)}")

    def training(self, done: int, total: int, loss: float) -> None:
        self._bar(
            _("Training"),
            done,
            total,
            _("{done} of {total}, loss {loss}").format(done=done, total=total, loss=f"{loss:.3f}"),
        )

    def _bar(self, name: str, done: int, total: int, figures: str) -> None:
        now = self._clock()
        if not self._stream.isatty():
            self._line(name, figures, now)
            return
        if self._drawn is not None and done < total and now - self._drawn < REDRAW_SECONDS:
            return
        bar = bar_text(name, done / total if total else 1.0, figures, _columns(self._stream))
        self._write(f"{bar}\x1b[K")
        self._drawn = now

    def _line(self, name: str, figures: str, now: float) -> None:
        """Where there is no terminal to draw on: a line now and then of what takes long."""
        if name != self._plain[0]:
            self._plain = (name, now)
        elif now - self._plain[1] >= PLAIN_SECONDS:
            self._plain = (name, now)
            self.note(f"{name}: {figures}")

    def _write(self, text: str) -> None:
        clear = "" if self._drawn is None else "\r\x1b[K"
        self._drawn = None
        try:
            self._stream.write(clear + text)
            self._stream.flush()
        except (OSError, ValueError):
            return


def _columns(stream: TextIO) -> int:
    """The terminal's width; 80 where it can't be asked."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def one_line(text: str) -> str:
    """Somebody else's words on one line, without what steers a terminal."""
    return harmless(text).replace("\n", " ")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "。", "!", "?")) else text + "."
