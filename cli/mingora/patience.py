"""How to wait on the platform: waiting reads where it has them, polling where not, outages waited out (CLI-10)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from mingora.errors import ApiError, InsecureServer, MingoraError, TlsError, TransportError

# A waiting read that comes back sooner than this without news wasn't one: look again after the polling interval.
TOO_SOON = 1.0
OUTAGE_SECONDS = 600.0


class Patience:
    """The waiting of one command. `timeout` None waits for ever.

    Use: each look inside `turn()`, which waits out an outage; `answered` after each look, which sleeps when the
    server couldn't wait; `over` says when to give up. `on_outage` hears of each outage once, when it begins.
    """

    def __init__(
        self,
        intervals: Mapping[str, float],
        timeout: float | None,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        on_outage: Callable[[MingoraError], object] | None = None,
    ) -> None:
        self._longest = float(intervals.get("maxWaitSeconds", 0))
        self._poll = float(intervals.get("jobPollSeconds", 10))
        self._clock = clock
        self._sleep = sleep
        self._end = None if timeout is None else clock() + timeout
        self._asked = clock()
        self._outage: float | None = None
        self._on_outage = on_outage

    def read_seconds(self) -> float:
        """The `wait` of the next waiting read."""
        return round(min(self._longest, self._left()), 3)

    def over(self) -> bool:
        return self._left() <= 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One look. An unreachable server is looked at again until it has been away for ten minutes."""
        self._asked = self._clock()
        try:
            yield
        except (TransportError, ApiError) as error:
            if not _passes(error):
                raise
            if self._outage is None:
                self._outage = self._asked
                if self._on_outage is not None:
                    self._on_outage(error)
            if self._clock() - self._outage > OUTAGE_SECONDS:
                raise
            self._pause(self._poll / 2)
        else:
            self._outage = None

    def answered(self, *, changed: bool, headers: Mapping[str, str]) -> None:
        """Sleeps before the next look when nothing is new and the server didn't wait."""
        if changed:
            return
        if "retry-after" in headers or self._clock() - self._asked < min(TOO_SOON, self.read_seconds() / 2):
            self._pause(self._poll)

    def _left(self) -> float:
        return float("inf") if self._end is None else max(0.0, self._end - self._clock())

    def _pause(self, seconds: float) -> None:
        self._sleep(min(seconds, self._left()))


def _passes(error: TransportError | ApiError) -> bool:
    if isinstance(error, ApiError):
        return error.status in {502, 503, 504}
    return not isinstance(error, InsecureServer | TlsError)
