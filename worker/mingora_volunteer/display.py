"""What the volunteer sees: a line for each event, and on a terminal a bar for what is going on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from mingora.errors import MingoraError
from mingora.output import bar_text, harmless, size_text
from mingora_volunteer.texts import _

REDRAW_SECONDS = 0.1
SAME_TROUBLE_SECONDS = 60.0


class Display:
    """Writes to `stream`, by default stderr; whoever closed it never stops the training."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._drawn: float | None = None
        self._trouble: tuple[str, float] | None = None

    def note(self, text: str) -> None:
        """One line."""
        self._write(f"{time.strftime('%H:%M:%S')}  {_one_line(text)}\n")

    def complain(self, error: MingoraError) -> None:
        """Why the program ends, and the remedy."""
        self._write(f"mingora-volunteer: {_one_line(error.message)}\n")
        if error.hint:
            self._write(f"  {_one_line(error.hint)}\n")

    def trouble(self, error: MingoraError) -> None:
        """Something waiting may cure; the same again not before a minute has passed."""
        now = self._clock()
        if self._trouble is None or self._trouble[0] != error.message or now - self._trouble[1] > SAME_TROUBLE_SECONDS:
            self._trouble = (error.message, now)
            self.note(_("{reason} Trying again.").format(reason=_sentence(error.message)))

    def relief(self) -> None:
        """Says, once, that the trouble last told is over."""
        if self._trouble is not None:
            self._trouble = None
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
        if not self._stream.isatty():
            return
        now = self._clock()
        if self._drawn is not None and done < total and now - self._drawn < REDRAW_SECONDS:
            return
        bar = bar_text(name, done / total if total else 1.0, figures, _columns(self._stream))
        self._write(f"{bar}\x1b[K")
        self._drawn = now

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


def _one_line(text: str) -> str:
    return harmless(text).replace("\n", " ")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "。", "!", "?")) else text + "."
