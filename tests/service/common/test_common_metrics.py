"""What a process measures: true figures, bounded labels, and only for who has the key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response
from prometheus_client.parser import text_string_to_metric_families
from support import FakeClock, Seed, bearer

from mingora_common import health
from mingora_common.auth import READ, TokenReader
from mingora_common.config import FrameConfig
from mingora_common.db.engine import Database
from mingora_common.http import json_body, make_app, needs
from mingora_common.metrics import Metrics
from mingora_common.openapi import document
from mingora_common.wake import Full, Waiters

KEY = "metrics-key-0123456789-abcdefghij"


def figures(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def figure(metrics: Metrics, name: str, **labels: str) -> float:
    return figures(metrics)[name, frozenset(labels.items())]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def app(sqlite_url: str, clock: FakeClock, metrics: Metrics) -> Iterator[Flask]:
    database = Database(sqlite_url, None)
    app = make_app("test", TokenReader(database, clock), FrameConfig(KEY), metrics)

    @app.post("/things/<thing>")
    def post(thing: str) -> Any:
        return json_body(["a"])

    @app.get("/stream")
    def stream() -> Response:
        return Response(iter([b"x" * 1000, b"y" * 500]))

    @app.get("/guarded")
    @needs(READ)
    def guarded() -> str:
        return "ok"

    yield app
    database.close()


@pytest.mark.req("OPS-3")
def test_requests_are_counted_by_route_and_bytes_by_service(app: Flask, metrics: Metrics) -> None:
    client = app.test_client()
    for number in range(3):
        assert client.post(f"/things/{number}", json={"a": 1}, buffered=True).status_code == 200
    client.post("/things/secret-name", json={"b": 1}, buffered=True)
    client.get("/stream", buffered=True)
    where = {"service": "test", "route": "/things/<thing>", "method": "POST"}
    assert figure(metrics, "mingora_requests_total", **where, status="200") == 3
    assert figure(metrics, "mingora_requests_total", **where, status="400") == 1
    assert figure(metrics, "mingora_request_seconds_count", **where) == 4
    assert figure(metrics, "mingora_received_bytes_total", service="test") == 4 * len(b'{"a": 1}')
    assert figure(metrics, "mingora_sent_bytes_total", service="test") > 1500
    assert b"secret-name" not in metrics.text()


@pytest.mark.req("OPS-3")
def test_no_request_makes_new_labels(app: Flask, metrics: Metrics) -> None:
    client = app.test_client()

    def ask(number: int) -> None:
        client.get(f"/nowhere/{number}", buffered=True)
        client.open(f"/things/{number}", method=f"WORD{number}", buffered=True)
        client.open("/stream", method="DELETE", buffered=True)

    ask(0)
    before = len(figures(metrics))
    for number in range(50):
        ask(number)
    assert len(figures(metrics)) == before
    other = {"service": "test", "route": "other", "method": "other", "status": "405"}
    assert figure(metrics, "mingora_requests_total", **other) == 51


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": KEY}, {"Authorization": "Bearer"}, bearer(KEY[:-1]), bearer(KEY + "x"), bearer("\xff"),
     {"Authorization": f"Basic {KEY}"}, {"X-Internal-Key": KEY}],
)  # fmt: skip
def test_figures_are_for_who_has_the_key(app: Flask, headers: dict[str, str]) -> None:
    client = app.test_client()
    answer = client.get("/metrics", headers=headers)
    assert (answer.status_code, (answer.get_json() or {})["error"]["code"]) == (404, "not_found")
    assert client.get("/metrics", headers=bearer(KEY)).status_code == 200
    assert client.get("/metrics", query_string={"key": KEY, "token": KEY}).status_code == 404


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("given", ["", "None", "Bearer "])
def test_without_a_key_there_are_no_figures(sqlite_url: str, clock: FakeClock, given: str) -> None:
    database = Database(sqlite_url, None)
    app = make_app("test", TokenReader(database, clock))
    assert app.test_client().get("/metrics", headers={"Authorization": f"Bearer {given}"}).status_code == 404
    database.close()


@pytest.mark.req("OPS-3", "JOB-9")
def test_waiting_reads_are_shown_by_kind_with_those_that_found_no_place(metrics: Metrics) -> None:
    waiters = Waiters(2)
    metrics.watch("scheduler", waiters, ("node", "lease"))
    with waiters.register(["node:1"]), waiters.register(["lease:1", "node:1"]):
        with pytest.raises(Full), waiters.register(["node:2"]):
            raise AssertionError("there is no place")
        assert figure(metrics, "mingora_waiting_reads", service="scheduler", kind="node") == 1
        assert figure(metrics, "mingora_waiting_reads", service="scheduler", kind="lease") == 1
    assert figure(metrics, "mingora_waiting_reads", service="scheduler", kind="node") == 0
    assert figure(metrics, "mingora_waiting_places", service="scheduler") == 2
    assert figure(metrics, "mingora_waits_refused_total", service="scheduler") == 1


@pytest.mark.req("OPS-3")
def test_threads_count_together(app: Flask, metrics: Metrics) -> None:
    def ask() -> None:
        client = app.test_client()
        for _ in range(20):
            client.get("/stream", buffered=True)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    where = {"service": "test", "route": "/stream", "method": "GET", "status": "200"}
    assert figure(metrics, "mingora_requests_total", **where) == 160


@pytest.mark.req("OPS-3")
def test_readiness_names_each_dependency_and_nothing_of_where_it_is(sqlite_url: str, clock: FakeClock) -> None:
    database = Database(sqlite_url, None)
    app = make_app("test", TokenReader(database, clock))

    def away() -> None:
        raise OSError("redis://:hunter2@10.0.0.1:6379 refused")

    needed = {**health.database_checks(database), "content": lambda: None}
    app.register_blueprint(health.blueprint(needed, {"redis": away}))
    answer = app.test_client().get("/readyz")
    checks = {"database": "ok", "schema": "ok", "content": "ok", "redis": "failed"}
    assert (answer.status_code, answer.get_json()) == (200, {"status": "ok", "checks": checks})
    database.close()

    app = make_app("test", TokenReader(database, clock))
    app.register_blueprint(health.blueprint({"content": away}))
    answer = app.test_client().get("/readyz")
    assert (answer.status_code, answer.get_json()) == (503, {"status": "unavailable", "checks": {"content": "failed"}})
    assert app.test_client().get("/healthz").status_code == 200


@pytest.mark.req("OPS-3")
def test_a_database_of_another_schema_is_not_ready(sqlite_url: str, seed: Seed, clock: FakeClock) -> None:
    database = Database(sqlite_url, None)
    check = health.database_checks(database)["schema"]
    check()
    with seed.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'v9999'")
    with pytest.raises(health.SchemaDiffers):
        check()
    database.close()


@pytest.fixture
def seed(sqlite_url: str, clock: FakeClock) -> Iterator[Seed]:
    seed = Seed(sqlite_url, clock)
    yield seed
    seed.engine.dispose()


@pytest.mark.req("OPS-3")
def test_a_route_that_says_nothing_of_itself_has_no_place_in_the_document(app: Flask) -> None:
    with pytest.raises(LookupError, match="doesn't describe itself"):
        document(app, "test")
