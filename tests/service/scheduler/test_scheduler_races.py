"""Two threads at once: one lease, one result, no lost wake-up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from scheduler_platform import V1, Platform, Worker
from support import bearer

from mingora_common.db import schema


def _together(*acts: Callable[[], Any]) -> list[Any]:
    barrier = threading.Barrier(len(acts))

    def start(act: Callable[[], Any]) -> Any:
        barrier.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(start, acts))


def _post(platform: Platform, path: str, body: Any, token: str) -> Callable[[], Any]:
    client = platform.app.test_client()
    return lambda: client.post(f"{V1}/nodes/{path}", json=body, headers=bearer(token))


@pytest.mark.req("JOB-9")
def test_claims_race_for_one_lease(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    acts = [_post(platform, f"{worker.id}/claim", {"claimId": f"claim-000000000{n}"}, worker.token) for n in range(4)]
    codes = [answer.status_code for answer in _together(*acts)]
    # One that a newer claim has superseded gets nothing (204); one that came after the lease was taken, 409.
    assert codes.count(200) == 1 and set(codes) <= {200, 204, 409}
    assert platform.events(job).count("lease.claimed") == 1


@pytest.mark.req("JOB-3")
def test_many_placements_at_once_reserve_once(platform: Platform) -> None:
    workers = [platform.worker(key) for key in range(1, 4)]
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    jobs = [platform.seed.job(platform.account, key=str(key), spec=spec) for key in range(3)]
    for each in workers:
        each.claim(status=204)
    _together(*[platform.place] * 4)
    live = platform.all(sa.select(schema.leases).where(schema.leases.c.ended_at.is_(None)))
    assert len(live) == 2 and len({row.attempt_id for row in live}) == 1 and len({row.node_id for row in live}) == 2
    assert sorted(platform.status(job).state for job in jobs) == ["queued", "queued", "reserved"]


@pytest.mark.req("JOB-5")
def test_a_long_queue_that_fits_nowhere_holds_nobody_up(platform: Platform, worker: Worker) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "runtime": "docker"}
    account = {"account_id": platform.account, "tenant_id": platform.seed.tenant_of(platform.account)}
    same = {"fingerprint": "0" * 64, "name": "t", "priority": 1, "inputs": [], "created_at": 1, "spec": spec, **account}
    rows = [{"id": f"job_{index:08}", "idempotency_key": f"k{index}", **same} for index in range(1500)]
    with platform.seed.engine.begin() as connection:
        connection.execute(sa.insert(schema.jobs), rows)
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    assert platform.status(job).state == "reserved"


@pytest.mark.req("JOB-6")
def test_placements_of_two_accounts_race_for_one_gpu(platform: Platform) -> None:
    gpu = {"index": 0, "uuid": "GPU-1", "name": "x", "memoryMiB": 1}
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"gpu": 1}}
    accounts = [platform.account, platform.seed.account("eve"), platform.seed.account("mia")]
    for key, account in enumerate(accounts, 1):
        platform.seed.job(account, spec=spec)
        platform.worker(key, account=account, machineId="m", gpu=gpu).claim(status=204)
    _together(*[lambda account=account: platform.place(account) for account in accounts])
    assert len(platform.all(sa.select(schema.leases))) == 1


@pytest.mark.req("JOB-4")
def test_two_reports_race_for_one_result(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    token = worker.lease["token"]
    good = {**worker.named(), "outcome": "succeeded", "logBytes": 0, "exitCode": 0}
    bad = {**worker.named(), "outcome": "failed", "logBytes": 0, "exitCode": 1}
    acts = [_post(platform, f"{worker.id}/report", body, token) for body in (good, bad, good, bad)]
    answers = _together(*acts)
    states = {answer.get_json()["state"] for answer in answers if answer.status_code == 200}
    assert states == {platform.status(job).state}
    assert sorted(answer.status_code for answer in answers)[:2] == [200, 200]
    assert platform.events(job).count("attempt.finished") == 1


@pytest.mark.req("JOB-7")
def test_report_and_sweep_and_cancel_race_and_one_wins(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    body = {**worker.named(), "outcome": "succeeded", "logBytes": 0}
    report = _post(platform, f"{worker.id}/report", body, worker.lease["token"])
    remove = lambda: platform.app.test_client().delete(f"{V1}/nodes/{worker.id}", headers=bearer(platform.user))  # noqa: E731
    _together(report, remove, lambda: platform.cancel(job), platform.expire)
    assert platform.status(job).state in ("succeeded", "failed", "cancelled")
    assert platform.events(job).count("attempt.finished") == 1


@pytest.mark.req("JOB-9")
def test_a_waiting_claim_is_woken_by_the_placement(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)

    def place_once_it_waits() -> None:
        while not platform.waiters.waiting:
            threading.Event().wait(0.005)
        platform.place()

    answers = _together(lambda: worker.claim(wait=15), place_once_it_waits)
    assert answers[0]["rank"] == 0
    assert platform.waiters.waiting == 0


@pytest.mark.req("JOB-3")
def test_a_waiting_heartbeat_is_woken_by_a_cancel(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()

    def cancel_once_it_waits() -> None:
        while not platform.waiters.waiting:
            threading.Event().wait(0.005)
        platform.cancel(job)

    answers = _together(lambda: worker.beat(wait=15), cancel_once_it_waits)
    assert answers[0].get_json()["stop"]["reason"] == "cancelled"


@pytest.mark.req("JOB-9")
def test_without_a_place_to_wait_the_answer_comes_at_once(platform: Platform, worker: Worker) -> None:
    platform.waiters.close()
    answer = _post(platform, f"{worker.id}/claim", {"claimId": "claim-0123456789", "wait": 15}, worker.token)()
    assert (answer.status_code, answer.headers["Retry-After"]) == (204, "1")
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    beat = worker.beat(wait=15)
    assert (beat.status_code, beat.headers["Retry-After"]) == (200, "1")


@pytest.mark.req("AUTH-4")
@pytest.mark.parametrize("how", ["revoked", "registered anew"])
def test_a_waiting_claim_gets_nothing_once_its_token_is_dead(platform: Platform, worker: Worker, how: str) -> None:
    job = platform.seed.job(platform.account)

    def revoke_then_place() -> None:
        while not platform.waiters.waiting:
            threading.Event().wait(0.005)
        platform.place()
        platform.waiters.close()

    claimed = worker.platform.app.test_client()
    before = platform.waker.wake

    def wake_after_the_token_died(topics: Any) -> None:
        if how == "revoked":
            platform.seed.revoke(worker.token)
        else:
            platform.worker()
        before(topics)

    platform.waker.wake = wake_after_the_token_died  # type: ignore[method-assign]
    body = {"claimId": "claim-0123456789", "wait": 15}
    answers = _together(
        lambda: claimed.post(f"{V1}/nodes/{worker.id}/claim", json=body, headers=bearer(worker.token)),
        revoke_then_place,
    )
    assert answers[0].status_code == 401
    assert platform.status(job).state == "reserved"
