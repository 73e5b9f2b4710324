"""The tasks and sweeps as functions: each finds what was left behind, once, and a broken row holds nobody up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from scheduler_platform import Platform, Worker

from mingora_common import hints
from mingora_common.db import schema
from mingora_scheduler.store import sweeps as store
from mingora_scheduler.store import tokens
from mingora_scheduler.tasks import context, functions, sweeps


class Marks:
    """Redis as far as tasks use it: it is told which marks to forget."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.away = False

    def delete(self, mark: str) -> None:
        if self.away:
            raise redis.ConnectionError
        self.forgotten.append(mark)


@pytest.fixture
def marks(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Marks]:
    marks = Marks()
    made = context.Context(platform.database, platform.clock, platform.hints, platform.waker, marks)  # type: ignore[arg-type]
    monkeypatch.setattr(context, "_current", made)
    yield marks


@pytest.mark.req("JOB-9")
def test_the_list_of_tasks_is_what_there_is() -> None:
    found = {
        f"{module.__name__}.{name}"
        for module in (functions, sweeps)
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    assert found - {f"{sweeps.__name__}.sweep_mark"} == hints.TASKS
    assert {hints.SWEEP_EXPIRE, hints.SWEEP_PLACE, *sweeps.SECONDS_BETWEEN} <= hints.TASKS


@pytest.mark.req("JOB-9")
def test_placing_forgets_the_mark_first_and_works_without_redis(
    platform: Platform, worker: Worker, marks: Marks
) -> None:
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    functions.place(platform.account)
    assert marks.forgotten == [hints.waiting_mark(hints.PLACE, platform.account)]
    assert platform.status(job).state == "reserved"
    marks.away = True
    functions.place(platform.account)
    sweeps.place()


@pytest.mark.req("JOB-9")
@pytest.mark.parametrize("task", [functions.place, functions.cancel, functions.purge, functions.archive_log])
def test_a_task_takes_ids_only(marks: Marks, task: Any) -> None:
    for wrong in ("", "x", "node_0123456789", None, 1, ["acc_0123456789"]):
        with pytest.raises(ValueError, match="not an id"):
            task(wrong)


@pytest.mark.req("JOB-7", "JOB-9")
def test_the_sweeps_catch_up_without_any_hint(platform: Platform, worker: Worker, marks: Marks) -> None:
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    sweeps.place()
    worker.claim()
    worker.log(0, b"abc")
    platform.seed.insert(schema.cancel_requests, job_id=job, at=platform.clock.now(), actor="test")
    sweeps.cancel()
    assert platform.status(job).state == "stopping"
    assert store.cancels_left(platform.database) == []
    platform.clock.advance(60)
    sweeps.expire()
    assert platform.status(job).state == "cancelled"
    sweeps.archive()
    assert store.unarchived(platform.database) == []
    with platform.seed.engine.begin() as connection:
        connection.execute(sa.delete(schema.jobs))
    sweeps.purge()
    for table in (schema.attempts, schema.leases, schema.events, schema.log_chunks):
        assert platform.all(sa.select(table)) == []
    before = platform.dump()
    for sweep in (sweeps.expire, sweeps.place, sweeps.cancel, sweeps.archive, sweeps.purge):
        sweep()
    assert platform.dump() == before


@pytest.mark.req("JOB-7")
def test_one_broken_attempt_holds_up_no_other(platform: Platform, marks: Marks) -> None:
    workers = [platform.worker(key) for key in (1, 2)]
    jobs = [platform.seed.job(platform.account, key=str(key)) for key in (1, 2)]
    platform.waiting(*workers)
    for each in workers:
        each.run()
    broken = workers[0].lease
    with platform.seed.engine.begin() as connection:
        update = sa.update(schema.attempts).where(schema.attempts.c.id == broken["attemptId"])
        connection.execute(update.values(detail={}))
    platform.clock.advance(60)
    with pytest.raises(KeyError):
        sweeps.expire()
    states = {job: platform.status(job).state for job in jobs}
    assert states[broken["jobId"]] == "running" and sorted(states.values()) == ["failed", "running"]


@pytest.mark.req("AUTH-9")
def test_old_lease_tokens_are_cleaned_and_node_tokens_kept(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    worker.report()
    platform.clock.advance(86_400)
    for left in (1, 0):
        with platform.database.write() as connection:
            tokens.clean(connection, platform.clock.now())
        kinds = [row.kind for row in platform.all(sa.select(schema.work_tokens))]
        assert kinds.count("lease") == left and kinds.count("node") == 1
        platform.clock.advance(1)


@pytest.mark.req("JOB-3", "WORK-3")
def test_results_pinned_for_a_lease_that_is_lost_meanwhile_are_let_go(
    platform: Platform, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    entry = {"path": "a", "objectId": "obj_0123456789", "size": 1, "sha256": "a" * 64, "executable": False}
    pin = platform.pins.pin

    def pin_slowly(owner: str, account_id: str, objects: Any) -> None:
        pin(owner, account_id, objects)
        platform.clock.advance(60)
        platform.expire()

    monkeypatch.setattr(platform.pins, "pin", pin_slowly)
    assert worker.report(results=[entry]).get_json()["error"]["code"] == "lease_lost"
    assert platform.pins.held == {}


@pytest.mark.req("OPS-2")
def test_health(platform: Platform) -> None:
    assert platform.client.get("/healthz").text == "ok"
    assert platform.client.get("/readyz").get_json()["status"] == "ok"


@pytest.mark.req("JOB-4", "JOB-9")
def test_a_clock_that_is_set_back_keeps_no_dead_worker_alive(platform: Platform, worker: Worker, marks: Marks) -> None:
    retry = {"schemaVersion": 1, "name": "t", "command": ["x"], "retry": {"max": 1}}
    job = platform.seed.job(platform.account, spec=retry)
    gone = platform.worker(2)
    platform.waiting(worker)
    worker.run()
    gone.claim(status=204)
    platform.clock.advance(-86_400)
    sweeps.expire()
    platform.clock.advance(59)
    sweeps.expire()
    assert platform.status(job).state == "running"
    platform.clock.advance(2)
    sweeps.expire()
    assert platform.status(job).reason_code == "lease_lost"
    platform.clock.advance(6)
    platform.place()
    assert platform.status(job).state == "queued"  # nobody waits: the other node's claim is long past
    platform.waiting(gone)
    assert platform.status(job).state == "reserved"


@pytest.mark.req("JOB-9")
def test_a_retry_isnt_put_off_by_a_clock_that_is_set_back(platform: Platform, worker: Worker) -> None:
    retry = {"schemaVersion": 1, "name": "t", "command": ["x"], "retry": {"max": 1}}
    job = platform.seed.job(platform.account, spec=retry)
    platform.waiting(worker)
    worker.run()
    worker.report("failed", exitCode=1)
    platform.clock.advance(-86_400)
    platform.waiting(worker)
    assert platform.status(job).state == "reserved"
