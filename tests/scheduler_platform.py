"""A scheduler over a real database, driven by Flask's test client; tasks run when called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from support import RecordedPins, Seed, bearer
from werkzeug.test import TestResponse

from mingora_common.clock import Clock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.db.views import job_status
from mingora_common.hints import Hints
from mingora_common.wake import Waiters
from mingora_scheduler.app import create_app
from mingora_scheduler.config import Config
from mingora_scheduler.store import sweeps
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.placement import place

V1 = "/api/research/v1"
CLAIM = "claim-0123456789"


@dataclass
class RecordedWaker:
    """Wakes this process's waiters, and writes the topics down."""

    waiters: Waiters
    topics: list[str] = field(default_factory=list)

    def wake(self, topics: Iterable[str]) -> None:
        topics = list(topics)
        self.topics += topics
        self.waiters.wake(topics)


@dataclass
class Worker:
    """A registered node, and the lease it has claimed last."""

    platform: Platform
    id: str
    token: str
    lease: dict[str, Any] = field(default_factory=dict)

    def claim(self, claim_id: str = CLAIM, wait: float = 0, status: int = 200) -> dict[str, Any]:
        answer = self._post("claim", {"claimId": claim_id, "wait": wait}, self.token)
        assert answer.status_code == status, answer.text
        if status == 200:
            self.lease = dict(answer.get_json())
        return dict(answer.get_json() or {})

    def ready(self, **changed: Any) -> TestResponse:
        body = {**self.named(), "inputsDigest": self.lease["inputsDigest"], **changed}
        return self._post("ready", body, self.lease["token"])

    def beat(self, **changed: Any) -> TestResponse:
        return self._post("heartbeat", {**self.named(), **changed}, self.lease["token"])

    def log(self, offset: int, data: bytes, **changed: Any) -> TestResponse:
        query = {**self.named(), "offset": offset, **changed}
        return self.platform.client.put(
            f"{V1}/nodes/{self.id}/logs", query_string=query, data=data, headers=bearer(self.lease["token"]),
            environ_overrides={"CONTENT_LENGTH": str(len(data))},
        )  # fmt: skip

    def report(self, outcome: str = "succeeded", **changed: Any) -> TestResponse:
        body = {**self.named(), "outcome": outcome, "logBytes": 0, **changed}
        return self._post("report", body, self.lease["token"])

    def named(self) -> dict[str, Any]:
        return {"leaseId": self.lease["leaseId"], "attempt": self.lease["attempt"]}

    def run(self) -> None:
        """From a claim to a running process."""
        self.claim()
        assert self.ready().status_code == 200
        assert self.beat(started=True).status_code == 200

    def open_claim(self) -> None:
        """Wait for work, without a hint."""
        with self.platform.seed.engine.begin() as connection:
            values = {"claimed_at": self.platform.clock.now()}
            connection.execute(sa.update(schema.nodes).where(schema.nodes.c.id == self.id).values(values))

    def _post(self, action: str, body: dict[str, Any], token: str) -> TestResponse:
        return self.platform.client.post(f"{V1}/nodes/{self.id}/{action}", json=body, headers=bearer(token))


@dataclass
class Platform:
    """Everything a test touches."""

    database: Database
    seed: Seed
    clock: Any
    hints: Any
    pins: RecordedPins
    waker: RecordedWaker
    waiters: Waiters
    client: FlaskClient
    app: Flask
    account: str
    user: str

    def worker(self, key: int = 1, account: str | None = None, **record: Any) -> Worker:
        """Register a node."""
        token = self.user if account is None else self.seed.token(account)
        answer = self.client.post(f"{V1}/nodes", json=node_record(key, **record), headers=bearer(token))
        assert answer.status_code in (200, 201), answer.text
        body = answer.get_json()
        return Worker(self, body["id"], body["token"])

    def place(self, account: str | None = None) -> Changes:
        changes = place(self.database, account or self.account, self.clock.now())
        changes.announce(self.waker, self.hints)
        return changes

    def waiting(self, *workers: Worker, claim_id: str = CLAIM) -> None:
        """Let workers ask for work, then place."""
        for worker in workers:
            worker.claim(claim_id, status=204)
        self.place()

    def expire(self) -> None:
        for attempt_id in sweeps.overdue(self.database, self.clock.now()):
            sweeps.expire(self.database, attempt_id, self.clock.now()).announce(self.waker, self.hints)

    def cancel(self, job_id: str) -> None:
        self.seed.insert(schema.cancel_requests, job_id=job_id, at=self.clock.now(), actor="test")
        self.carry_out_cancel(job_id)

    def carry_out_cancel(self, job_id: str) -> None:
        sweeps.cancel(self.database, job_id, self.clock.now()).announce(self.waker, self.hints)

    def status(self, job_id: str) -> Any:
        return self.one(sa.select(job_status).where(job_status.c.job_id == job_id))

    def events(self, job_id: str) -> list[str]:
        query = sa.select(schema.events).where(schema.events.c.job_id == job_id).order_by(schema.events.c.seq)
        rows = self.all(query)
        assert [row.seq for row in rows] == list(range(2, 2 + len(rows)))
        return [row.type for row in rows]

    def all(self, query: Any) -> list[Any]:
        with self.seed.engine.begin() as connection:
            return list(connection.execute(query).all())

    def one(self, query: Any) -> Any:
        return self.all(query)[0]

    def dump(self) -> dict[str, list[Any]]:
        """Every row of every table, to see that nothing changed."""
        return {
            name: sorted((tuple(row) for row in self.all(sa.select(table))), key=repr)
            for name, table in schema.metadata.tables.items()
        }


def node_record(key: int = 1, **changed: Any) -> dict[str, Any]:
    """The body of a registration."""
    return {
        "nodeKey": f"{key:032x}", "name": f"node-{key}", "version": "0.1.0", "platform": "linux-x86_64",
        "machineId": f"machine-{key}", "cpu": 8, "memoryMiB": 16000, "gpu": None, "runtimes": ["native"],
        "imageDigest": None, "fingerprint": None, "networkGroup": None, "allowClusterNetwork": False, "labels": {},
        "data": [], **changed,
    }  # fmt: skip


def make_platform(database_url: str, seed: Seed, clock: Clock, hints: Hints, waiters: Waiters) -> Platform:
    """A platform with one account; its user's token is ``user``. Close its ``database`` afterwards."""
    database = Database(database_url, schema.SCHEDULER)
    pins, waker = RecordedPins(), RecordedWaker(waiters)
    config = Config(database_url, "redis://unused", "k" * 32, "http://127.0.0.1:1")
    app = create_app(config, database=database, clock=clock, hints=hints, pins=pins, waker=waker, waiters=waiters)
    account = seed.account()
    client = app.test_client()
    return Platform(database, seed, clock, hints, pins, waker, waiters, client, app, account, seed.token(account))
