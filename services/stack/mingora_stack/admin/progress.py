"""Tells on stderr, every few seconds, how far something long has come."""

from __future__ import annotations

import time

from mingora_api.admin.output import note

EVERY_SECONDS = 5.0
MIB = 1024 * 1024


class Progress:
    """Counts bytes; silent about what is done before the first few seconds are over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bytes = 0
        self._told = time.monotonic()

    def add(self, size: int) -> None:
        self._bytes += size
        if time.monotonic() - self._told >= EVERY_SECONDS:
            self._told = time.monotonic()
            note(f"{self._what}: {self._bytes / MIB:,.0f} MiB")
