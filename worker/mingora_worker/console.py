"""What the worker tells the person who watches it: one event a line, on stderr, as text or as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
import unicodedata
from datetime import datetime, timezone
from typing import Any, TextIO

from mingora.errors import MingoraError
from mingora_worker.texts import _

SAME_TROUBLE_SECONDS = 60.0


class Console:
    """Thread-safe. Events have a stable name for programs and a translated message for people."""

    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._json = as_json
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._trouble = ("", 0.0)
        self.request_id: str | None = None
        """What the job at hand came from: every JSON line says so."""

    def event(self, name: str, message: str, **fields: Any) -> None:
        """Prints one line. A console that went away never stops the work."""
        now = datetime.now(timezone.utc)
        if self._json:
            at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            request = {} if self.request_id is None else {"request": self.request_id}
            line = json.dumps({"at": at, "event": name, "message": message, **request, **fields})
        else:
            line = f"{now.astimezone():%Y-%m-%d %H:%M:%S}  {plain(message)}"
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except UnicodeEncodeError:
                self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            except (OSError, ValueError):
                return

    def complain(self, message: str, hint: str | None) -> None:
        """Says why the worker ends, and the remedy."""
        if self._json:
            self.event("error", message, hint=hint)
            return
        print(f"mingora-worker: {plain(message)}", file=self._stream)
        if hint:
            print(f"  {plain(hint)}", file=self._stream)

    def trouble(self, error: MingoraError) -> None:
        """Says that the platform can't be reached; the same again not before a minute has passed."""
        now = time.monotonic()
        with self._lock:
            known = error.message == self._trouble[0] and now - self._trouble[1] < SAME_TROUBLE_SECONDS
            if not known:
                self._trouble = (error.message, now)
        if not known:
            self.event("trouble", _("{reason} Trying again.").format(reason=_sentence(error.message)))

    def relief(self) -> None:
        """Says, once, that the trouble last told is over."""
        with self._lock:
            told, self._trouble = self._trouble[0], ("", 0.0)
        if told:
            self.event("reachable", _("The platform answers again."))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "。", "!", "?")) else text + "."


def plain(text: str) -> str:
    """Text from elsewhere without control characters: a job's name must not steer the terminal."""
    return "".join(" " if unicodedata.category(c) in {"Cc", "Cf"} else c for c in text)
