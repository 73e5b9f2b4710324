"""Keeps what is sent under a rate, so that a shared line stays usable."""

from __future__ import annotations

import re
from collections.abc import Callable

from mingora.errors import UsageProblem
from mingora_volunteer.texts import _

LEAST_RATE = 1024
BLOCK = 64 * 1024
_RATE = re.compile(r"(\d{1,12})([KMG]?)(?:iB|B)?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Pace:
    """Counts one transfer's bytes. `rate` in bytes a second, None without a limit; `clock` in seconds."""

    def __init__(self, rate: int | None, *, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._start = clock()
        self._sent = 0
        self.block = BLOCK if rate is None else max(LEAST_RATE, min(BLOCK, rate // 8))

    def sent(self, size: int) -> None:
        """Waits until `size` more bytes are within the rate."""
        self._sent += size
        if self._rate is not None:
            early = self._sent / self._rate - (self._clock() - self._start)
            if early > 0:
                self._sleep(early)


def rate_of(text: str) -> int:
    """Bytes a second of a text such as `500K` or `2M`. Raises `UsageProblem`."""
    match = _RATE.fullmatch(text.strip())
    rate = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if rate < LEAST_RATE:
        raise UsageProblem(
            _("--max-upload takes bytes a second such as 500K or 2M, at least 1K, not {text}.").format(text=repr(text))
        )
    return rate
