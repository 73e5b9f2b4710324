"""Showing, listing, cancelling and deleting jobs over REST."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import sqlalchemy as sa
from service.api.api_harness import SPEC, Api
from support import FakeClock, Seed

from mingora_common.blobs import ObjectRef
from mingora_common.db import schema
from mingora_common.errors import UNAVAILABLE, ServiceError

RANK = {"rank": 0, "nodeId": "node_12345678", "nodeName": "büro", "state": "succeeded", "exitCode": 0}
RESULT = {
    "path": "results/o.txt", "objectId": "obj_12345678", "size": 1, "sha256": "c" * 64, "executable": False, "rank": 0
}  # fmt: skip


def attempt(seed: Seed, account: str, job_id: str, number: int = 1, **values: Any) -> str:
    """An attempt of scheduler's with one lease; running unless said otherwise."""
    attempt_id, now = f"att_{job_id[4:]}{number}", seed.clock.now()
    row: dict[str, Any] = {
        "id": attempt_id, "job_id": job_id, "account_id": account, "tenant_id": "ten_12345678", "number": number,
        "ranks": 1, "state": "running", "final": None, "created_at": now, "ready_deadline_at": now,
        "started_at": now, "ended_at": None, "detail": {"ranks": [{**RANK, "state": "running", "exitCode": None}]},
    }  # fmt: skip
    seed.insert(schema.attempts, **{**row, **values})
    seed.lease(
        account, f"node_{number:08}", job_id, attempt_id=attempt_id, attempt=number, log_bytes=7,
        ended_at=values.get("ended_at"),
    )  # fmt: skip
    return attempt_id


def ended(seed: Seed, state: str = "succeeded", **values: Any) -> dict[str, Any]:
    now = seed.clock.now()
    return {"state": state, "final": 1, "ended_at": now, "detail": {"ranks": [RANK]}, **values}


def actions(api: Api) -> list[tuple[str, str | None]]:
    with api.database.read() as connection:
        rows = connection.execute(sa.select(schema.audit).order_by(schema.audit.c.id)).all()
    return [(row.action, row.subject) for row in rows]


@pytest.mark.req("JOB-1", "REST-1")
def test_a_finished_job_is_shown_as_documented(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account, spec=SPEC, name=SPEC["name"])
    attempt(
        seed, account, job_id, exit_code=0, results=[RESULT],
        **ended(seed, usage={"cpuSeconds": 1.2, "maxMemoryMiB": 80}),
    )  # fmt: skip
    job = api.call("GET", f"/jobs/{job_id}", token).get_json()
    at = "2027-01-15T08:00:00.000Z"
    assert job == {
        "id": job_id, "name": SPEC["name"], "key": "key", "state": "succeeded", "reason": None,
        "cancelRequested": False, "priority": 0, "attempt": 1, "createdAt": at, "startedAt": at, "finishedAt": at,
        "exitCode": 0, "ranks": [{**RANK, "logBytes": 7, "isolation": None}],
        "usage": {"cpuSeconds": 1.2, "maxMemoryMiB": 80, "verified": False},
        "spec": SPEC, "inputs": [], "results": [RESULT],
    }  # fmt: skip
    listed = api.call("GET", "/jobs", token).get_json()["jobs"][0]
    short = {**job, "ranks": [{**RANK, "logBytes": 7}]}
    assert listed == {name: value for name, value in short.items() if name not in ("spec", "inputs", "results")}


@pytest.mark.req("WORK-7", "JOB-1")
def test_the_isolation_of_a_ranks_container_stays_with_the_job(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    ranks = [RANK, {**RANK, "rank": 1}]
    attempt_id = attempt(seed, account, job_id, **{**ended(seed), "detail": {"ranks": ranks}})
    profile = {"network": "none", "quota": "loop", "pids": 512, "seccomp": True, "apparmor": None}
    seed.lease(
        account, "node_00000002", job_id, attempt_id=attempt_id, rank=1, isolation=profile, ended_at=seed.clock.now()
    )
    job = api.call("GET", f"/jobs/{job_id}", token).get_json()
    assert [rank["isolation"] for rank in job["ranks"]] == [None, profile]


@pytest.mark.req("JOB-7")
def test_the_reason_of_a_failure_is_shown_and_a_retry_is_queued(api: Api, token: str, account: str, seed: Seed) -> None:
    failed, retried = seed.job(account, "1"), seed.job(account, "2")
    reason = {"reason_code": "exit_code", "reason_message": "It ended with 3."}
    attempt(seed, account, failed, **ended(seed, "failed", exit_code=3, **reason))
    attempt(seed, account, retried, 2, **ended(seed, "failed", **{**reason, "final": 0}))
    job = api.call("GET", f"/jobs/{failed}", token).get_json()
    assert (job["state"], job["exitCode"]) == ("failed", 3)
    assert job["reason"] == {"code": "exit_code", "message": "It ended with 3."}
    job = api.call("GET", f"/jobs/{retried}", token).get_json()
    assert (job["state"], job["attempt"], job["reason"], job["finishedAt"]) == ("queued", 2, None, None)


@pytest.mark.req("JOB-1")
def test_the_list_goes_newest_first_page_by_page(
    api: Api, token: str, account: str, seed: Seed, clock: FakeClock
) -> None:
    made = []
    for number in range(7):
        made.append(seed.job(account, f"k{number}"))
        clock.advance(number % 2)  # some share their time
    seed.job(seed.account("veli"), "foreign")
    seen: list[dict[str, Any]] = []
    cursor = None
    for _ in range(4):
        page = api.call("GET", f"/jobs?limit=2{f'&before={cursor}' if cursor else ''}", token).get_json()
        seen += page["jobs"]
        cursor = page["next"]
    assert cursor is None
    assert sorted(job["id"] for job in seen) == sorted(made)
    order = [(job["createdAt"], job["id"]) for job in seen]
    assert order == sorted(order, reverse=True)


@pytest.mark.req("JOB-1")
def test_the_list_by_state_and_by_key(api: Api, token: str, account: str, seed: Seed) -> None:
    done, waiting = seed.job(account, "a key/with &"), seed.job(account, "2")
    attempt(seed, account, done, **ended(seed))
    by_state = api.call("GET", "/jobs?state=succeeded", token).get_json()["jobs"]
    assert [job["id"] for job in by_state] == [done]
    assert [job["id"] for job in api.call("GET", "/jobs?state=queued", token).get_json()["jobs"]] == [waiting]
    by_key = api.call("GET", "/jobs", token, query_string={"key": "a key/with &"}).get_json()["jobs"]
    assert [job["id"] for job in by_key] == [done]
    assert api.call("GET", "/jobs?key=3", token).get_json() == {"jobs": [], "next": None}


@pytest.mark.req("JOB-1", "REST-2")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit"), ("state=done", "state"),
        ("before=!", "before"), ("before=MTIz", "before"), ("before=", "before"), ("key=", "key"),
        ("before=%F0%9F%98%80", "before"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(api: Api, token: str, query: str, field: str) -> None:
    answer = api.call("GET", f"/jobs?{query}", token)
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == field


@pytest.mark.req("JOB-1")
def test_cancelling_a_queued_job_ends_it_once(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    answer = api.call("POST", f"/jobs/{job_id}/cancel", token)
    job = answer.get_json()
    assert answer.status_code == 202
    assert (job["state"], job["cancelRequested"], job["reason"]["code"]) == ("cancelled", True, "cancelled")
    assert job["finishedAt"] is not None
    again = api.call("POST", f"/jobs/{job_id}/cancel", token, json={})
    assert again.status_code == 200 and again.get_json() == job
    assert api.hints.sent == [("cancel", job_id)]
    assert api.waker.woken == [f"job:{job_id}"]
    assert actions(api) == [("job.cancel", job_id)]


@pytest.mark.req("JOB-1")
def test_cancelling_a_running_job_asks_and_a_finished_one_stays(api: Api, token: str, account: str, seed: Seed) -> None:
    running, done = seed.job(account, "1"), seed.job(account, "2")
    attempt(seed, account, running)
    attempt(seed, account, done, 2, **ended(seed))
    for _ in range(2):
        answer = api.call("POST", f"/jobs/{running}/cancel", token)
        assert answer.status_code == 202
        assert (answer.get_json()["state"], answer.get_json()["cancelRequested"]) == ("running", True)
    assert actions(api) == [("job.cancel", running)]
    answer = api.call("POST", f"/jobs/{done}/cancel", token)
    assert answer.status_code == 200
    assert (answer.get_json()["state"], answer.get_json()["cancelRequested"]) == ("succeeded", False)
    assert api.call("POST", f"/jobs/{done}/cancel", token, json={"why": 1}).status_code == 400


@pytest.mark.req("JOB-1")
def test_racing_cancels_are_one_request(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt(seed, account, job_id)
    statuses: list[int] = []

    def cancel() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        statuses.append(
            api.app.test_client().post(f"/api/research/v1/jobs/{job_id}/cancel", headers=headers).status_code
        )

    threads = [threading.Thread(target=cancel) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [202] * 8
    assert actions(api) == [("job.cancel", job_id)]


@pytest.mark.req("JOB-1")
def test_deleting_lets_go_of_inputs_and_results(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = api.submit(token).get_json()["id"]
    attempt_id = attempt(seed, account, job_id)
    api.pins.held = {owner: [ObjectRef("obj_12345678", "a" * 64, 3)] for owner in (job_id, attempt_id)}
    refused = api.call("DELETE", f"/jobs/{job_id}", token)
    assert refused.status_code == 409 and refused.get_json()["error"]["code"] == "job_not_finished"
    assert set(api.pins.held) == {job_id, attempt_id}
    with seed.engine.begin() as connection:
        connection.execute(sa.update(schema.attempts).values(state="succeeded", final=1, ended_at=1))
    assert api.call("DELETE", f"/jobs/{job_id}", token).status_code == 204
    assert api.pins.held == {}
    assert api.hints.sent[-1] == ("purge", job_id) and api.waker.woken[-1] == f"job:{job_id}"
    for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/logs"), ("DELETE", ""), ("POST", "/cancel")):
        assert api.call(method, f"/jobs/{job_id}{path}", token).status_code == 404
    assert actions(api)[-1] == ("job.delete", job_id)
    assert api.submit(token).status_code == 201  # the key is free again


@pytest.mark.req("JOB-1")
def test_a_cancelled_job_can_be_deleted(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    api.call("POST", f"/jobs/{job_id}/cancel", token)
    assert api.call("DELETE", f"/jobs/{job_id}", token).status_code == 204
    with api.database.read() as connection:
        assert connection.execute(sa.select(schema.cancel_requests)).first() is None


@pytest.mark.req("JOB-1", "BLOB-7")
def test_a_job_is_deleted_even_while_blobstore_is_away(
    api: Api, token: str, account: str, seed: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_owner: str) -> None:
        raise ServiceError(UNAVAILABLE)

    job_id = seed.job(account)
    attempt(seed, account, job_id, **ended(seed))
    monkeypatch.setattr(api.pins, "release", away)
    assert api.call("DELETE", f"/jobs/{job_id}", token).status_code == 204
    assert api.call("GET", f"/jobs/{job_id}", token).status_code == 404
    assert api.hints.sent == [("purge", job_id)]


@pytest.mark.req("JOB-1")
def test_a_waiting_read_answers_when_the_state_changes(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    answers: list[Any] = []

    def wait() -> None:
        client = api.app.test_client()
        headers = {"Authorization": f"Bearer {token}"}
        answers.append(client.get(f"/api/research/v1/jobs/{job_id}?wait=15&knownState=queued", headers=headers))

    thread = threading.Thread(target=wait)
    started = time.monotonic()
    thread.start()
    while api.waiters.waiting == 0 and time.monotonic() < started + 10:
        time.sleep(0.005)
    assert api.call("POST", f"/jobs/{job_id}/cancel", token).status_code == 202
    thread.join(10)
    assert answers[0].get_json()["state"] == "cancelled"
    assert time.monotonic() - started < 10


@pytest.mark.req("JOB-1")
def test_a_waiting_read_without_a_place_answers_at_once(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    api.waiters.close()
    for path in (f"/jobs/{job_id}?knownState=queued&wait=15", f"/jobs/{job_id}/events?after=1&wait=15"):
        answer = api.call("GET", path, token)
        assert answer.status_code == 200 and answer.headers["Retry-After"] == "1"
    log = api.call("GET", f"/jobs/{job_id}/logs?wait=15", token)
    assert log.status_code == 200 and log.headers["Retry-After"] == "1"
    other_state = api.call("GET", f"/jobs/{job_id}?knownState=running&wait=15", token)
    assert other_state.status_code == 200 and "Retry-After" not in other_state.headers


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=nan", "knownState=gone"])
def test_bad_waits_are_refused(api: Api, token: str, account: str, seed: Seed, query: str) -> None:
    assert api.call("GET", f"/jobs/{seed.job(account)}?{query}", token).status_code == 400
