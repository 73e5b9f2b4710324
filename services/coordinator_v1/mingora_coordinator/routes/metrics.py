"""``/metrics`` for Prometheus, and what a container's machinery asks: ``/healthz`` and ``/readyz``."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from mingora_coordinator.routes.wire import answer
from mingora_coordinator.store.counters import Counter as Counted
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.training.training import Training

ACTIVE_SECONDS = 600.0
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)


class Requests:
    """Counts what is answered, by route; a path that isn't one is ``other``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter(
            "mingora_coordinator_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "mingora_coordinator_request_seconds",
            "Seconds from a request's head to the start of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._count.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


def blueprint(training: Training, keys: Keys, registry: CollectorRegistry) -> Blueprint:
    """The three routes over the process's ``registry``."""
    routes = Blueprint("metrics", __name__)
    ProcessCollector(registry=registry)
    registry.register(_Training(training))

    @routes.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    @routes.get("/healthz")
    def healthz() -> Response:
        return Response("ok", mimetype="text/plain")

    @routes.get("/readyz")
    def readyz() -> Response:
        checks = {**training.health(), "keys": keys.readable}
        ready = all(checks.values())
        told = {name: "ok" if fine else "failed" for name, fine in checks.items()}
        return answer({"status": "ok" if ready else "unavailable", "checks": told}, 200 if ready else 503)

    return routes


class _Training(Collector):
    """The training's own figures, read when they are asked for."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def collect(self) -> Iterator[Metric]:
        training, counters = self._training, self._training.counters
        active = sum(seconds < ACTIVE_SECONDS for seconds in training.contacts().values())
        closed = training.ledger.rounds()
        for name, text, value in (
            ("round", "The open round.", training.published.number),
            ("rounds", "Rounds of the whole training.", training.settings.rounds),
            ("pending_results", "Recorded results of the open round.", len(training.pending())),
            ("active_workers", "Workers heard of in the last ten minutes.", active),
            ("last_close_seconds", "How long making the latest adapter took.", closed[-1]["seconds"] if closed else 0),
        ):
            yield GaugeMetricFamily(f"mingora_coordinator_{name}", text, value=float(value))
        for name, text, counter in (
            ("sent_bytes", "Bytes of adapters sent.", Counted.SENT),
            ("received_bytes", "Bytes of results received.", Counted.RECEIVED),
            ("accepted_results", "Results accepted.", Counted.ACCEPTED),
            ("refused_results", "Results refused.", Counted.REFUSED),
        ):
            yield CounterMetricFamily(f"mingora_coordinator_{name}", text, value=float(counters[counter]))
