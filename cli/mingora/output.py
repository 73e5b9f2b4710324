"""What people and programs get to see: data on stdout, everything else on stderr (CLI-12).

Text that came from elsewhere is made harmless for a terminal: it can't move the cursor, recolour, or reorder letters.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from mingora.i18n import _

SCHEMA_VERSION = 1
BAR_WIDTH = 24
SHORTEST_BAR = 4
# Unicode's directional controls can make a text read differently from what it says.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_COLOURS = {"succeeded": "32", "failed": "31", "cancelled": "33", "running": "36", "error": "31", "ok": "32"}


def harmless(text: str) -> str:
    """The text with controls other than newline and tab shown as escapes."""
    if text.isprintable() and _REORDERING.isdisjoint(text):
        return text
    return "".join(c if _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(char: str) -> bool:
    if char in "\n\t":
        return True
    return unicodedata.category(char) not in {"Cc", "Cs"} and char not in _REORDERING


class Output:
    """Where a command writes. `as_json`: one JSON object a line on stdout instead of text for people."""

    def __init__(self, *, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.as_json = as_json
        self.stdout = sys.stdout if stdout is None else stdout
        self.stderr = sys.stderr if stderr is None else stderr
        self._bar = ""
        self._stage = ""
        self._drawn = 0.0
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def emit(self, data: Mapping[str, Any], text: str) -> None:
        """One result: `data` for programs, `text` for people."""
        if self.as_json:
            import json

            self._print(json.dumps({"schemaVersion": SCHEMA_VERSION, **data}))
        elif text:
            self._print(harmless(text))

    def raw(self, data: bytes) -> None:
        """A log's bytes: as they are into a file or pipe, made harmless on a terminal."""
        self.clear_bar()
        if self.stdout.isatty():
            self.stdout.write(harmless(self._decoder.decode(data).replace("\r\n", "\n")))
            self.stdout.flush()
        else:
            self.stdout.flush()
            self.stdout.buffer.write(data)
            self.stdout.buffer.flush()

    def note(self, text: str) -> None:
        """What goes on, for people."""
        self.clear_bar()
        print(harmless(text), file=self.stderr, flush=True)

    def error(self, text: str, hint: str | None = None) -> None:
        label = self.colour(_("Error:"), "error", self.stderr)
        self.note_coloured(f"{label} {harmless(text)}")
        if hint:
            self.note(hint)

    def note_coloured(self, text: str) -> None:
        """A note made of harmless pieces and colours of our own."""
        self.clear_bar()
        print(text, file=self.stderr, flush=True)

    def colour(self, text: str, kind: str, stream: TextIO | None = None) -> str:
        """`text` in the colour of a state, if the stream shows colours and NO_COLOR isn't set."""
        stream = self.stdout if stream is None else stream
        code = _COLOURS.get(kind)
        if code is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
            return text
        return f"\x1b[{code}m{text}\x1b[0m"

    def progress(self, stage: str, done: int, total: int) -> None:
        """Draws a bar on a terminal, ten times a second at most."""
        if not self.stderr.isatty():
            return
        with self._lock:
            now = time.monotonic()
            if stage == self._stage and done < total and now - self._drawn < 0.1:
                return
            self._stage, self._drawn = stage, now
            share = 1.0 if total == 0 else min(1.0, done / total)
            names = {"hash": _("Reading"), "upload": _("Uploading"), "download": _("Downloading")}
            figures = f"{share:4.0%} {size_text(done)} / {size_text(total)}"
            self._bar = f"\r{bar_text(names[stage], share, figures, self._columns())}\x1b[K"
            self.stderr.write(self._bar)
            self.stderr.flush()

    def clear_bar(self) -> None:
        with self._lock:
            if self._bar:
                self.stderr.write("\r\x1b[K")
                self.stderr.flush()
                self._bar = ""

    def _columns(self) -> int:
        """The terminal's width; 80 where it can't be asked."""
        try:
            return os.get_terminal_size(self.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _print(self, text: str) -> None:
        self.clear_bar()
        print(text, file=self.stdout, flush=True)


def bar_text(name: str, share: float, figures: str, columns: int) -> str:
    """A progress bar in less than `columns`: a line that wraps couldn't be drawn over. The bar gives way first."""
    room = columns - 1 - _width(f"{name} [] {figures}")
    width = min(BAR_WIDTH, room)
    if width >= SHORTEST_BAR:
        filled = int(share * width)
        return f"{name} [{'#' * filled}{'-' * (width - filled)}] {figures}"
    return f"{name} {figures}" if room + 3 >= 0 else figures.strip()[: max(0, columns - 1)]


def size_text(size: float) -> str:
    """Bytes for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(text: str) -> str:
    """A time of the platform (RFC 3339, UTC) on this machine's clock, to the second."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return text


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns, wide East Asian characters counted as two."""
    cells = [list(head), *([harmless(str(cell)).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(head))]
    lines = ("  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def pairs(rows: Sequence[tuple[str, object]]) -> str:
    """Labels and values, one a line."""
    return table(["", ""], rows).split("\n", 1)[1] if rows else ""


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in {"W", "F"} else 1 for c in text
    )
