"""Two replicas of api and scheduler, and two more: processes that race on one database, on both engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from scheduler_platform import Platform, make_platform
from support import RecordedHints, Seed

from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.wake import Waiters

ROOT = Path(__file__).parents[3]
REPLICAS = 4


class Replicas:
    """The processes; each is told something at the same moment."""

    def __init__(self, url: str) -> None:
        paths = [str(ROOT / "tests"), *(path for path in sys.path if path)]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "replica", url], env=environ, text=True, bufsize=1,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
            for _ in range(REPLICAS)
        ]  # fmt: skip
        assert [self._line(process) for process in self._processes] == ["ready"] * REPLICAS

    def race(self, *commands: list[Any]) -> list[Any]:
        """One command for each process, all at once; their answers."""
        assert len(commands) == REPLICAS
        for process, command in zip(self._processes, commands, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        answers = [json.loads(self._line(process)) for process in self._processes]
        assert not [answer for answer in answers if answer and answer[0] in ("error", 500, 503)], answers
        return answers

    def same(self, *command: Any) -> list[Any]:
        return self.race(*[list(command)] * REPLICAS)

    def end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


@pytest.fixture
def platform(database_url: str) -> Iterator[Platform]:
    clock: Any = SystemClock()
    seed = Seed(database_url, clock)
    platform = make_platform(database_url, seed, clock, RecordedHints(), Waiters(8))
    yield platform
    platform.database.close()
    seed.engine.dispose()


@pytest.fixture
def replicas(database_url: str) -> Iterator[Replicas]:
    replicas = Replicas(database_url)
    yield replicas
    replicas.end()


@pytest.mark.req("CLI-8", "BLOB-7")
def test_submits_race_for_one_key_and_for_the_last_places(platform: Platform, replicas: Replicas) -> None:
    for round_ in range(5):
        answers = replicas.same("submit", platform.user, f"key-{round_}")
        assert sorted(status for status, _ in answers) == [200, 200, 200, 201]
        assert len({body["id"] for _, body in answers}) == 1
    with platform.seed.engine.begin() as connection:
        limits = schema.account_limits
        connection.execute(sa.update(limits).where(limits.c.account_id == platform.account).values(max_jobs=7))
    answers = replicas.race(*[["submit", platform.user, f"place-{number}"] for number in range(REPLICAS)])
    assert sorted(status for status, _ in answers) == [201, 201, 403, 403]
    assert len(platform.all(sa.select(schema.jobs.c.id))) == 7


@pytest.mark.req("JOB-3", "JOB-9", "JOB-4")
def test_a_job_from_placing_to_its_report_is_everyones_and_happens_once(platform: Platform, replicas: Replicas) -> None:
    for round_ in range(3):
        worker = platform.worker(round_ + 1)
        worker.open_claim()
        job = platform.seed.job(platform.account, f"job-{round_}")
        replicas.same("place", platform.account)
        (lease,) = platform.all(sa.select(schema.leases).where(schema.leases.c.job_id == job))
        claims = [["node", worker.token, worker.id, "claim", {"claimId": f"claim-00000000{n:02}"}] for n in range(4)]
        answers = replicas.race(*claims)
        assert [status for status, _ in answers].count(200) == 1 and {s for s, _ in answers} <= {200, 204, 409}
        (granted,) = [body for status, body in answers if status == 200]
        assert granted["leaseId"] == lease.id
        named = {"leaseId": lease.id, "attempt": 1}
        token, ready = granted["token"], {**named, "inputsDigest": granted["inputsDigest"]}
        assert {status for status, _ in replicas.same("node", token, worker.id, "ready", ready)} == {200}
        beat = {**named, "started": True}
        assert {status for status, _ in replicas.same("node", token, worker.id, "heartbeat", beat)} == {200}
        report = {**named, "outcome": "succeeded", "logBytes": 0}
        answers = replicas.same("node", token, worker.id, "report", report)
        assert {status for status, _ in answers} == {200}, answers
        assert platform.status(job).state == "succeeded"
        told = platform.events(job)
        assert len(told) == len(set(told)), told


@pytest.mark.req("JOB-4", "JOB-7")
def test_cancel_report_and_expiry_race_and_one_end_holds(platform: Platform, replicas: Replicas) -> None:
    ends = set()
    for round_ in range(8):
        worker = platform.worker(round_ + 1)
        job = platform.seed.job(platform.account, f"job-{round_}")
        platform.waiting(worker)
        worker.run()
        report = {**worker.named(), "outcome": "succeeded", "logBytes": 0}
        answers = replicas.race(
            ["cancel", platform.user, job],
            ["node", worker.lease["token"], worker.id, "report", report],
            ["node", worker.lease["token"], worker.id, "heartbeat", worker.named()],
            ["sweep", 61_000 if round_ % 2 else 0],
        )
        assert {status for status, _ in answers[:3]} <= {200, 202, 401, 409}
        replicas.race(["sweep", 61_000], ["sweep", 61_000], ["sweep", 61_000], ["place", platform.account])
        state = platform.status(job).state
        ends.add(state)
        assert state in ("succeeded", "cancelled", "failed"), state
        assert (state == "succeeded") <= (answers[1][0] == 200)
        assert not platform.all(
            sa.select(schema.leases.c.id).where(schema.leases.c.job_id == job, schema.leases.c.ended_at.is_(None))
        )
        platform.events(job)
    assert ends


@pytest.mark.req("JOB-6")
def test_placements_of_several_accounts_over_the_same_gpus_never_wait_for_each_other(
    platform: Platform, replicas: Replicas
) -> None:
    """Each account's nodes stand on the same machines: leases of the same GPUs are inserted in every order."""
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"gpu": 1}}
    accounts = [platform.account, *(platform.seed.account(name) for name in ("eve", "mia", "can"))]
    for round_ in range(3):
        key = 0
        for account in accounts:
            for gpu in range(4):
                key += 1
                record = {"index": 0, "uuid": f"GPU-{round_}-{gpu}", "name": "x", "memoryMiB": 1}
                where = {"machineId": f"m-{round_}", "gpu": record}
                platform.worker(100 * round_ + key, account=account, **where).open_claim()
                platform.seed.job(account, f"{round_}-{gpu}", spec=spec)
        # Not twice the same order: an account's first node stands on another GPU than its neighbour's.
        replicas.race(*[["place", *accounts[turn:], *accounts[:turn]] for turn in range(REPLICAS)])
        live = platform.all(sa.select(schema.leases).where(schema.leases.c.machine_id == f"m-{round_}"))
        assert sorted(row.gpu_uuid for row in live) == [f"GPU-{round_}-{gpu}" for gpu in range(4)]
