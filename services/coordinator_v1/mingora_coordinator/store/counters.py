"""Counters that outlive a killed process: whole numbers in a mapped file. A power cut may lose the last of them."""

from __future__ import annotations

import mmap
import struct
import threading
from enum import IntEnum
from pathlib import Path

_ONE = struct.Struct("<q")


class Counter(IntEnum):
    """What is counted."""

    SENT = 0  # bytes of adapters
    RECEIVED = 1  # bytes of results
    ACCEPTED = 2
    REFUSED = 3


class Counters:
    """The counters in the file at ``path``, which is made when there is none."""

    def __init__(self, path: Path) -> None:
        size = _ONE.size * len(Counter)
        with path.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._lock = threading.Lock()

    def add(self, counter: Counter, amount: int) -> None:
        with self._lock:
            _ONE.pack_into(self._map, _ONE.size * counter, self[counter] + amount)

    def __getitem__(self, counter: Counter) -> int:
        (value,) = _ONE.unpack_from(self._map, _ONE.size * counter)
        return int(value)
