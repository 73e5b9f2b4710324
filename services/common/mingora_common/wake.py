"""Waking what waits: a waiting read registers a topic and sleeps; whoever commits a change publishes the topic.

Wake-ups are hints over Redis pub/sub. A lost one costs time, never truth: a waiter looks again every
``LOOK_AGAIN_SECONDS`` by itself. A waiter registers before its second look, so no wake-up falls between look and sleep.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from mingora_common import faults

MAX_WAIT_SECONDS = 15.0
LOOK_AGAIN_SECONDS = 2.0
CHANNEL = "mingora:wake"

_log = structlog.get_logger()
T = TypeVar("T")


class Full(Exception):
    """There is no place for another waiter; answer at once with Retry-After."""


class Waker(Protocol):
    """Publishes topics that changed. Call it after the commit, never before."""

    def wake(self, topics: Iterable[str]) -> None: ...


class Waiters:
    """The waiting reads of one process, by topic. Bounded, so that waiting can't take every thread."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.refused = 0
        self._lock = threading.Lock()
        self._by_topic: dict[str, set[threading.Event]] = defaultdict(set)
        self._waiting: Counter[str] = Counter()
        self._closed = False

    @contextmanager
    def register(self, topics: Iterable[str]) -> Iterator[threading.Event]:
        """Hold a place and an event that is set by a wake-up of any of ``topics``; raises :class:`Full`."""
        topics = tuple(topics)
        kind = topics[0].partition(":")[0]
        event = threading.Event()
        with self._lock:
            if self._closed or self._waiting.total() >= self.places:
                self.refused += 1
                raise Full
            self._waiting[kind] += 1
            for topic in topics:
                self._by_topic[topic].add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._waiting[kind] -= 1
                for topic in topics:
                    self._by_topic[topic].discard(event)
                    if not self._by_topic[topic]:
                        del self._by_topic[topic]

    def wake(self, topics: Iterable[str]) -> None:
        """Wake this process's own waiters of ``topics``."""
        with self._lock:
            for topic in topics:
                for event in self._by_topic.get(topic, ()):
                    event.set()

    def close(self) -> None:
        """Let every waiter go and accept no more: what a stopping process does first."""
        with self._lock:
            self._closed = True
            for events in self._by_topic.values():
                for event in events:
                    event.set()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        return self._waiting.total()

    def waiting_of(self, kind: str) -> int:
        """How many wait whose first topic is of this kind (its first word)."""
        return self._waiting[kind]


def wait_for(look: Callable[[], T | None], waiters: Waiters, topics: Iterable[str], seconds: float) -> T | None:
    """Look until there is something, at most ``seconds`` (cut to 15).

    ``look`` returns None while there is nothing. It must not hold a database connection between calls.
    Raises :class:`Full` only when there is nothing and no place to wait.
    """
    found = look()
    if found is not None or seconds <= 0:
        return found
    deadline = time.monotonic() + min(seconds, MAX_WAIT_SECONDS)
    with waiters.register(topics) as event:
        while True:
            found = look()
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or waiters.closed:
                return found
            event.wait(min(left, LOOK_AGAIN_SECONDS))
            event.clear()


def connect(url: str, *, blocking: bool = False) -> redis.Redis:
    """A Redis client that fails at once instead of retrying (a submit mustn't wait for Redis).

    ``blocking`` clients have no read timeout, which would break a longer blocking read.
    """
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=2,
        socket_timeout=None if blocking else 2,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
    )


class RedisWaker:
    """Publishes to every process that listens on the same Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def wake(self, topics: Iterable[str]) -> None:
        try:
            self._client.publish(CHANNEL, "\n".join(topics))
        except redis.RedisError as error:
            _log.warning("wake_lost", error=error.__class__.__name__)
        faults.point("wake.after")


class Listener(threading.Thread):
    """One a process: takes published topics and wakes the waiters. Reconnects for as long as it lives."""

    def __init__(self, url: str, *waiters: Waiters) -> None:
        super().__init__(name="wake-listener", daemon=True)
        self._url = url
        self._waiters = waiters
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except (redis.RedisError, OSError) as error:
                _log.warning("wake_listener_lost", error=error.__class__.__name__)
                self._stopping.wait(0.5)

    def stop(self) -> None:
        self._stopping.set()

    def _listen(self) -> None:
        client = connect(self._url, blocking=True)
        with client, client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
            channel.subscribe(CHANNEL)
            while not self._stopping.is_set():
                message = channel.get_message(timeout=1.0)
                if message is not None:
                    topics = message["data"].decode("utf-8", "replace").split("\n")
                    for waiters in self._waiters:
                        waiters.wake(topics)
