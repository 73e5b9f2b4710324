"""A waiting read ends soon after its token: whoever revokes one needn't wait for the reads that are under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from scheduler_platform import V1, Platform, Worker, make_platform
from support import FakeClock, RecordedHints, RecordedPins, Seed, bearer
from werkzeug.test import Client, TestResponse

import mingora_api.app
from mingora_api.config import Config
from mingora_api.domain.passwords import Passwords
from mingora_common import wake
from mingora_common.db.engine import Database
from mingora_common.wake import Waiters
from mingora_stack.router import Router


@pytest.fixture
def platform(
    database_url: str, seed: Seed, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Platform, Client]]:
    """Scheduler and api behind the stack's router."""
    monkeypatch.setattr(wake, "LOOK_AGAIN_SECONDS", 0.05)
    waiters = Waiters(8)
    scheduler = make_platform(database_url, seed, clock, RecordedHints(), waiters)
    database = Database(database_url, "api")
    api = mingora_api.app.create_app(
        Config(database_url, "unix:///nonexistent", "k" * 32, "http://127.0.0.1:1"), database=database, clock=clock,
        hints=RecordedHints(), pins=RecordedPins(), waker=scheduler.waker, waiters=waiters, passwords=Passwords(),
    )  # fmt: skip
    yield scheduler, Client(Router({"api": api, "scheduler": scheduler.app}))
    database.close()
    scheduler.database.close()


def _at_work(platform: Platform) -> tuple[Worker, str]:
    worker, job_id = platform.worker(), platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    return worker, job_id


@pytest.mark.req("AUTH-4", "JOB-9")
@pytest.mark.parametrize("read", ["job", "events", "logs", "claim", "heartbeat", "heartbeat of a revoked node"])
def test_a_waiting_read_ends_with_its_token(platform: tuple[Platform, Client], read: str) -> None:
    scheduler, client = platform
    worker, job_id = _at_work(scheduler)
    token, revoked = scheduler.user, scheduler.user
    if read == "claim":
        worker = scheduler.worker(2)
        token = revoked = worker.token
    elif read.startswith("heartbeat"):
        token = worker.lease["token"]
        revoked = worker.token if read.endswith("node") else token
    calls = {
        "job": ("GET", f"/jobs/{job_id}?wait=15&knownState=running", None),
        "events": ("GET", f"/jobs/{job_id}/events?wait=15&after=1000", None),
        "logs": ("GET", f"/jobs/{job_id}/logs?wait=15", None),
        "claim": ("POST", f"/nodes/{worker.id}/claim", {"claimId": "claim-9876543210", "wait": 15}),
        "heartbeat": ("POST", f"/nodes/{worker.id}/heartbeat", {**(worker.lease and worker.named()), "wait": 15}),
    }
    method, path, body = calls[read.split(" ", maxsplit=1)[0]]
    answers: list[TestResponse] = []

    def wait() -> None:
        answers.append(client.open(V1 + path, method=method, json=body, headers=bearer(token)))

    thread = threading.Thread(target=wait)
    thread.start()
    while scheduler.waiters.waiting == 0:
        assert thread.is_alive(), answers
        thread.join(0.01)
    scheduler.seed.revoke(revoked)
    thread.join(5)
    scheduler.waiters.close()
    thread.join()
    assert [answer.status_code for answer in answers] == [401]
