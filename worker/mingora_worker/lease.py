"""Keeps one lease alive and knows when it is over: heartbeats, and the 45 seconds rule.

The platform takes a lease away `ttlSeconds` after the last heartbeat. The worker stops its own work earlier, three
quarters of that time (45 of 60 s) after it *sent* the last heartbeat that was acknowledged, so that two machines
never work on one attempt for long even when their clocks run apart.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mingora.errors import ApiError, MingoraError
from mingora_worker.api import WAIT_SECONDS, Beat, NodeApi, Stop, lease_gone
from mingora_worker.backoff import Backoff

BEAT_SECONDS = 15.0
OWN_SHARE = 0.75
# An answer faster than this didn't wait: asking again at once would ask for ever.
IMMEDIATE_SECONDS = 1.0


def steady_clock() -> float:
    """Seconds that never jump; they go on while the machine sleeps where the system can tell (Linux)."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Timer:
    """When to beat and when to give up. Pure: `now` and all times are seconds of one steady clock."""

    def __init__(self, sent_at: float, ttl: float) -> None:
        self._acked_sent = sent_at
        self._ttl = ttl
        self._next = sent_at

    @property
    def give_up_at(self) -> float:
        return self._acked_sent + OWN_SHARE * self._ttl

    @property
    def interval(self) -> float:
        return min(BEAT_SECONDS, self._ttl / 4)

    def expired(self, now: float) -> bool:
        return now >= self.give_up_at

    def answered(self, sent_at: float, now: float, ttl: float) -> None:
        """A heartbeat was acknowledged. One that was answered late, after waiting, is followed at once."""
        self._acked_sent = max(self._acked_sent, sent_at)
        self._ttl = ttl
        waited = now - sent_at >= IMMEDIATE_SECONDS
        self._next = now if waited else sent_at + self.interval

    def failed(self, now: float, delay: float, asked: float | None) -> None:
        """A heartbeat failed. The next comes soon, or when the server `asked` for it, at the latest by the interval."""
        self._next = now + (min(delay, self.interval / 3) if asked is None else min(asked, self.interval))

    def until_next(self, now: float) -> float:
        return max(0.0, self._next - now)


class Lease:
    """One lease. All of its state may be read from any thread; `wait` sleeps until some of it changes."""

    def __init__(
        self,
        api: NodeApi,
        lease_id: str,
        attempt: int,
        *,
        sent_at: float,
        ttl: float,
        on_failure: Callable[[MingoraError], None],
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self.id = lease_id
        self.attempt = attempt
        self._api = api
        self._clock = clock
        self._timer = Timer(sent_at, ttl)
        self._on_failure = on_failure
        self._backoff = Backoff()
        self._changed = threading.Condition()
        self._closed = False
        self._lost = False
        self._started = False
        self._told_started = False
        self._failing = False
        self._usage: dict[str, Any] | None = None
        self.start = False
        self.stop: Stop | None = None

    def close(self) -> None:
        """Ends the heartbeats; what the platform says to one still in flight doesn't matter any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def lost(self) -> bool:
        """Whether the work must end and nothing may be reported."""
        return self._lost or self.expired

    @property
    def expired(self) -> bool:
        """Whether the last acknowledged heartbeat is too long ago."""
        return self._timer.expired(self._clock())

    def lose(self) -> None:
        """Another call has learnt that the lease is gone."""
        with self._changed:
            self._lost = self._lost or not self._closed
            self._changed.notify_all()

    def set_started(self) -> None:
        """The first process runs: said at the next heartbeat, which comes at once unless one is waiting."""
        with self._changed:
            self._started = True
            self._changed.notify_all()

    def set_usage(self, usage: dict[str, Any]) -> None:
        self._usage = usage

    def accept(self, beat: Beat, sent_at: float) -> None:
        """Takes what the platform said to a request sent at `sent_at`."""
        with self._changed:
            self._timer.answered(sent_at, self._clock(), beat.ttl)
            self.start = self.start or beat.start
            self.stop = self.stop or beat.stop
            self._changed.notify_all()

    def wait(self, timeout: float) -> None:
        """Sleeps until the lease changes, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait(timeout)

    def clock(self) -> float:
        return self._clock()

    def run(self) -> None:
        """Sends heartbeats until the lease is closed or lost. For a thread of its own."""
        while not self._pause():
            self.beat()
            if self.lost:
                self.lose()
                return

    def _pause(self) -> bool:
        """Waits for the time of the next heartbeat. Returns whether the lease is closed."""
        with self._changed:
            if self.start and not self._started and not self.stop:
                # The process is about to start: one heartbeat says so, rather than one now and one in a moment.
                self._changed.wait_for(lambda: self._closed or self._started, IMMEDIATE_SECONDS)
            self._changed.wait_for(
                lambda: self._closed or (self._started and not self._told_started and not self._failing),
                self._timer.until_next(self._clock()),
            )
            return self._closed

    def beat(self) -> None:
        """Sends one heartbeat. With a stop under way nothing is left to wait for; after a failure it must be quick."""
        sent_at = self._clock()
        started = self._started
        wait = 0.0 if self.stop or self._failing else min(WAIT_SECONDS, self._timer.interval)
        try:
            answer = self._api.heartbeat(self.id, self.attempt, wait=wait, started=started, usage=self._usage)
        except MingoraError as error:
            if lease_gone(error):
                self.lose()
                return
            if not self._closed:
                self._failing = True
                self._on_failure(error)
                asked = error.retry_after if isinstance(error, ApiError) else None
                self._timer.failed(self._clock(), self._backoff.failed(error), asked)
            return
        self._backoff.succeeded()
        self._failing = False
        self._told_started = started
        self.accept(answer, sent_at)
