"""Many workers and jobs while processes are killed at random: afterwards all is as if nothing had happened."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import redis
import sqlalchemy as sa
from e2e_support import RunningStack, User, until
from scheduler_platform import node_record

from mingora_common.db import schema
from mingora_common.db.views import job_status
from mingora_stack.settings import database_url

# MINGORA_SOAK="20x50" is the large one: so many workers, so many jobs for each, and a minute of trouble.
NODES, EACH = map(int, os.environ.get("MINGORA_SOAK", "8x5").split("x"))
JOBS = NODES * EACH
SECONDS = 8.0 if JOBS <= 40 else 60.0
PATIENCE = max(100.0, JOBS / 2)
SPEC = {"schemaVersion": 1, "name": "soak", "command": ["true"], "retry": {"max": 3}}
FINISHED = ("succeeded", "failed", "cancelled")


class Platform:
    """REST calls that are made again until they are answered: what a client does that doesn't know the outcome."""

    def __init__(self, user: User) -> None:
        self.base = f"{user.stack.url}/api/research/v1"
        self.token = user.login_record()["token"]

    def call(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        for _ in range(200):
            request = urllib.request.Request(self.base + path, data, method=method)
            request.add_header("Authorization", f"Bearer {token or self.token}")
            for name, value in headers.items():
                request.add_header(name.replace("_", "-"), value)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, json.loads(answer.read() or b"{}")
            except urllib.error.HTTPError as error:
                assert error.code != 500, error.read()
                if error.code != 503:
                    return error.code, json.loads(error.read())
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise AssertionError(f"{method} {path} was never answered")


class Node(threading.Thread):
    """A worker without a machine: claims, says that it started, and reports."""

    def __init__(self, platform: Platform, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.platform, self.over = platform, over
        status, self.record = platform.call("POST", "/nodes", node_record(number))
        assert status in (200, 201), self.record

    def run(self) -> None:
        while not self.over.is_set():
            self._work(secrets.token_hex(16))

    def _work(self, claim_id: str) -> None:
        me = f"/nodes/{self.record['id']}"
        status, lease = self.platform.call(
            "POST", f"{me}/claim", {"claimId": claim_id, "wait": 1}, self.record["token"]
        )  # fmt: skip
        if status != 200 or not lease:
            return
        named, token = {"leaseId": lease["leaseId"], "attempt": lease["attempt"]}, lease["token"]
        ready = {**named, "inputsDigest": lease["inputsDigest"], "wait": 1}
        status, orders = self.platform.call("POST", f"{me}/ready", ready, token)
        if status != 200:
            return
        if not orders["stop"]:
            status, orders = self.platform.call("POST", f"{me}/heartbeat", {**named, "started": True}, token)
        outcome = "cancelled" if status == 200 and orders["stop"] else "succeeded"
        self.platform.call("POST", f"{me}/report", {**named, "outcome": outcome, "logBytes": 0}, token)


def _trouble(stack: RunningStack, chance: random.Random) -> Iterator[Callable[[], None]]:
    """What befalls the stack, over and over, in an order of chance."""

    def killer(role: str) -> Callable[[], None]:
        return lambda: stack.process_of(role).kill()

    def empty() -> None:
        with redis.Redis.from_url(f"unix://{stack.folder.run / 'valkey.sock'}") as client:
            client.flushall()

    acts = [killer("tasks"), killer("server worker"), killer("valkey"), killer("server"), empty]
    while True:
        yield from chance.sample(acts, len(acts))


@pytest.mark.req("JOB-4", "JOB-9", "OPS-2")
@pytest.mark.timeout(120 + 3 * PATIENCE)
def test_nothing_is_lost_or_done_twice_under_random_kills(
    breakable_stack: RunningStack, new_user: Callable[[RunningStack], User]
) -> None:
    stack, chance, over = breakable_stack, random.Random(7), threading.Event()
    platform = Platform(new_user(stack))
    nodes = [Node(platform, number, over) for number in range(NODES)]
    for node in nodes:
        node.start()
    jobs: list[str] = []

    def submit() -> None:
        for number in range(JOBS):
            status, job = platform.call("POST", "/jobs", {"spec": SPEC, "inputs": []}, Idempotency_Key=f"soak-{number}")
            assert status in (200, 201), job
            jobs.append(job["id"])
            if number % 5 == 0:
                platform.call("POST", f"/jobs/{job['id']}/cancel", {})
            time.sleep(SECONDS / JOBS / 2)

    submitting = threading.Thread(target=submit)
    submitting.start()
    started = time.monotonic()
    for act in itertools.takewhile(lambda _: time.monotonic() < started + SECONDS, _trouble(stack, chance)):
        with suppress(AssertionError, psutil.Error, redis.RedisError):  # it is dead already
            act()
        time.sleep(0.4)
    submitting.join()
    engine = sa.create_engine(database_url(stack.folder))
    query = sa.select(sa.func.count()).select_from(job_status).where(
        job_status.c.job_id.in_(jobs), job_status.c.state.in_(FINISHED)
    )  # fmt: skip

    def all_done() -> bool:
        with engine.connect() as connection:
            return connection.execute(query).scalar_one() == JOBS

    until(all_done, PATIENCE, "every job has ended")
    over.set()
    for node in nodes:
        node.join(40)
    _check(engine, platform, jobs)
    engine.dispose()
    until(lambda: stack.roles() == ["server", "server worker", "tasks", "valkey"], 60, "the stack is whole again")


def _check(engine: sa.Engine, platform: Platform, jobs: list[str]) -> None:
    assert len(set(jobs)) == JOBS
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.leases).where(schema.leases.c.ended_at.is_(None))).all() == []
        attempts = connection.execute(sa.select(schema.attempts).where(schema.attempts.c.job_id.in_(jobs))).all()
        assert connection.execute(sa.select(schema.pins)).all() == []
    for job_id in jobs:
        mine = sorted((row for row in attempts if row.job_id == job_id), key=lambda row: row.number)
        assert [row.number for row in mine] == list(range(1, len(mine) + 1))
        assert all(row.ended_at is not None for row in mine)
        assert [row.final for row in mine[:-1]] == [0] * len(mine[:-1])
        _, job = platform.call("GET", f"/jobs/{job_id}")
        _, page = platform.call("GET", f"/jobs/{job_id}/events")
        kinds = [event["type"] for event in page["events"]]
        assert page["final"] and [event["seq"] for event in page["events"]] == list(range(1, len(kinds) + 1))
        assert kinds.count("attempt.reserved") == kinds.count("attempt.finished") == len(mine), kinds
        assert kinds.count("job.cancel_requested") == int(job["cancelRequested"]), (job, kinds)
        assert job["state"] != "failed", job
        assert job["state"] == "succeeded" or job["cancelRequested"], job
