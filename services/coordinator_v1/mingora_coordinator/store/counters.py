"""Counters that outlive a killed process: whole numbers in a mapped file. A power cut may lose the last of them."""

from __future__ import annotations

import mmap
import os
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
            os.posix_fallocate(file.fileno(), 0, size)  # a sparse file on a full disk would end the process at a write
            self._map = mmap.mmap(file.fileno(), size)
        self._lock = threading.Lock()

    def set(self, counter: Counter, value: int) -> None:
        """What a counter was, as the journals tell it."""
        with self._lock:
            _ONE.pack_into(self._map, _ONE.size * counter, value)

    def add(self, counter: Counter, amount: int) -> None:
        with self._lock:
            _ONE.pack_into(self._map, _ONE.size * counter, self[counter] + amount)

    @classmethod
    def read(cls, path: Path) -> dict[Counter, int]:
        """What the file says now; zeros when there is none."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        values = dict.fromkeys(Counter, 0)
        for counter in Counter:
            if len(data) >= _ONE.size * (counter + 1):
                (values[counter],) = _ONE.unpack_from(data, _ONE.size * counter)
        return values

    def __getitem__(self, counter: Counter) -> int:
        (value,) = _ONE.unpack_from(self._map, _ONE.size * counter)
        return int(value)
