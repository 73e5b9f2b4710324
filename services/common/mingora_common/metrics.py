"""What a process measures of itself, for Prometheus.

Every service has one process with many threads, so the figures live in that process's memory: Prometheus asks each
replica. The embedded stack's three services share one :class:`Metrics`. Labels have bounded values: a route is named by
its template, never by the path that was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from mingora_common.drain import BODY
from mingora_common.wake import Waiters

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# WSGI environment: the matched route's template.
ROUTE = "mingora.route"
OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
# Seconds. Waiting reads take up to 15 by intent; a part over a slow line takes long.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 16.0, 60.0)

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Metrics:
    """One process's figures; what further services know is added as collectors."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        where = ("service", "route", "method")
        self._requests = Counter(
            "mingora_requests", "Requests answered.", (*where, "status"), registry=self.registry
        )  # fmt: skip
        self._seconds = Histogram(
            "mingora_request_seconds",
            "Seconds from a request's head to its answer's last byte, waiting reads included.",
            where,
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._received = Counter(
            "mingora_received_bytes", "Bytes of request bodies taken.", ("service",), registry=self.registry
        )
        self._sent = Counter("mingora_sent_bytes", "Bytes of answers' bodies.", ("service",), registry=self.registry)
        self._waits = _Waits()
        self.registry.register(self._waits)

    def add(self, collector: Collector) -> None:
        """Ask ``collector`` too, whenever the figures are read."""
        self.registry.register(collector)

    def watch(self, service: str, waiters: Waiters, kinds: Iterable[str]) -> None:
        """Show how many reads of each kind (the first word of their first topic) wait in ``waiters``."""
        self._waits.watched.append((service, waiters, tuple(kinds)))

    def answered(
        self, service: str, environ: dict[str, Any], status: str, seconds: float, received: int, sent: int
    ) -> None:
        """Count a request whose answer has ended."""
        method = environ.get("REQUEST_METHOD", "")
        where = (service, environ.get(ROUTE, OTHER), method if method in METHODS else OTHER)
        self._requests.labels(*where, status).inc()
        self._seconds.labels(*where).observe(seconds)
        self._received.labels(service).inc(received)
        self._sent.labels(service).inc(sent)

    def text(self) -> bytes:
        """All figures in Prometheus's text format."""
        return generate_latest(self.registry)


class Measured:
    """WSGI middleware: counts each request once its answer has ended, however it ended."""

    def __init__(self, app: Wsgi, service: str, metrics: Metrics) -> None:
        self._app = app
        self._service = service
        self._metrics = metrics

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        started, status = time.monotonic(), ["500"]

        def begin(line: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            status[0] = line[:3]
            return start_response(line, headers, *rest)

        def ended(sent: int) -> None:
            received = getattr(environ.get(BODY), "taken", 0)
            seconds = time.monotonic() - started
            self._metrics.answered(self._service, environ, status[0], seconds, received, sent)

        return _Answer(self._app(environ, begin), ended)


class _Waits(Collector):
    """The waiting reads of every service of this process."""

    def __init__(self) -> None:
        self.watched: list[tuple[str, Waiters, tuple[str, ...]]] = []

    def collect(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("mingora_waiting_reads", "Reads that wait now.", labels=("service", "kind"))
        places = GaugeMetricFamily("mingora_waiting_places", "Reads that may wait at once.", labels=("service",))
        refused = CounterMetricFamily(
            "mingora_waits_refused", "Reads that were answered at once for want of a place.", labels=("service",)
        )
        for service, waiters, kinds in self.watched:
            for kind in kinds:
                waiting.add_metric((service, kind), waiters.waiting_of(kind))
            places.add_metric((service,), waiters.places)
            refused.add_metric((service,), waiters.refused)
        yield from (waiting, places, refused)


class _Answer:
    """An answer's body that tells how many bytes of it were taken, when the server is done with it."""

    def __init__(self, body: Iterable[bytes], ended: Callable[[int], None]) -> None:
        self._body = body
        self._ended = ended
        self._sent = 0
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            self._sent += len(piece)
            yield piece

    def close(self) -> None:
        try:
            getattr(self._body, "close", _nothing)()
        finally:
            if not self._closed:
                self._closed = True
                self._ended(self._sent)


def _nothing() -> None:
    return None
