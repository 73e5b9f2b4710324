"""How long to wait before trying again: exponential with jitter, up to half a minute, for ever."""

from __future__ import annotations

import random
from collections.abc import Callable

from mingora.errors import ApiError, MingoraError

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
# A server may ask for more, up to this.
LONGEST_ASKED_SECONDS = 3600.0


class Backoff:
    """Counts failures in a row. `spread(low, high)` gives the jitter."""

    def __init__(self, spread: Callable[[float, float], float] = random.uniform) -> None:
        self._spread = spread
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, error: MingoraError) -> float:
        """Seconds to wait; a server's Retry-After is the least, unless it asks for longer than an hour."""
        self._failures += 1
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, 10))
        wait = self._spread(longest / 2, longest)
        asked = error.retry_after if isinstance(error, ApiError) else None
        if asked is None:
            return wait
        asked = min(asked, LONGEST_ASKED_SECONDS)
        return max(asked, self._spread(asked, asked * 1.1))
