"""Events and logs over REST."""

from __future__ import annotations

import threading
import time
import zlib
from typing import Any

import pytest
from service.api.api_harness import Api
from support import FakeClock, Seed

from mingora_common.clock import rfc3339
from mingora_common.db import schema


def event(seed: Seed, job_id: str, seq: int, kind: str = "attempt.started") -> None:
    seed.insert(schema.events, job_id=job_id, seq=seq, at=seed.clock.now(), type=kind, data={"attempt": 1})


def attempt(seed: Seed, account: str, job_id: str, number: int = 1, **values: Any) -> str:
    attempt_id, now = f"att_{job_id[4:]}{number}", seed.clock.now()
    row: dict[str, Any] = {
        "id": attempt_id, "job_id": job_id, "account_id": account, "tenant_id": "ten_12345678", "number": number,
        "ranks": 1, "state": "running", "created_at": now, "ready_deadline_at": now, "detail": {"ranks": []},
    }  # fmt: skip
    seed.insert(schema.attempts, **{**row, **values})
    return attempt_id


def log(seed: Seed, account: str, job_id: str, chunks: list[bytes], number: int = 1, **values: Any) -> str:
    """One rank's log of ``chunks``; every second one is compressed."""
    attempt_id = f"att_{job_id[4:]}{number}"
    start = 0
    for index, data in enumerate(chunks):
        stored = zlib.compress(data) if index % 2 else data
        codec = "zlib" if index % 2 else "raw"
        seed.insert(
            schema.log_chunks, attempt_id=attempt_id, rank=values.get("rank", 0), start=start, size=len(data),
            codec=codec, data=stored,
        )  # fmt: skip
        start += len(data)
    seed.lease(
        account, f"node_{number:04}{values.get('rank', 0):04}", job_id, attempt_id=attempt_id, attempt=number,
        **{"log_bytes": start, **values},
    )  # fmt: skip
    return attempt_id


def cancel(seed: Seed, job_id: str) -> None:
    seed.insert(schema.cancel_requests, job_id=job_id, at=seed.clock.now(), actor="x")


@pytest.mark.req("JOB-1")
def test_events_begin_with_the_submission(api: Api, token: str, account: str, seed: Seed, clock: FakeClock) -> None:
    job_id = seed.job(account)
    clock.advance(1)
    event(seed, job_id, 2, "attempt.reserved")
    event(seed, job_id, 3)
    answer = api.call("GET", f"/jobs/{job_id}/events", token).get_json()
    assert answer == {
        "events": [
            {"seq": 1, "at": "2027-01-15T08:00:00.000Z", "type": "job.submitted", "data": {"key": "key"}},
            {"seq": 2, "at": "2027-01-15T08:00:01.000Z", "type": "attempt.reserved", "data": {"attempt": 1}},
            {"seq": 3, "at": "2027-01-15T08:00:01.000Z", "type": "attempt.started", "data": {"attempt": 1}},
        ],
        "last": 3,
        "final": False,
    }
    after = api.call("GET", f"/jobs/{job_id}/events?after=2", token).get_json()
    assert ([found["seq"] for found in after["events"]], after["last"]) == ([3], 3)
    none = api.call("GET", f"/jobs/{job_id}/events?after=3", token).get_json()
    assert none == {"events": [], "last": 3, "final": False}


@pytest.mark.req("JOB-1")
def test_events_are_final_only_at_the_end_of_an_ended_job(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt(seed, account, job_id, state="failed", final=1, ended_at=seed.clock.now())
    for seq in (2, 3, 4):
        event(seed, job_id, seq)
    seen, after = [], 0
    for _ in range(4):
        page = api.call("GET", f"/jobs/{job_id}/events?after={after}&limit=1&wait=15", token).get_json()
        seen.append((page["last"], page["final"]))
        after = page["last"]
    assert seen == [(1, False), (2, False), (3, False), (4, True)]
    assert api.call("GET", f"/jobs/{job_id}/events?after=4&wait=15", token).get_json()["final"] is True


@pytest.mark.req("JOB-1")
def test_a_cancel_in_the_queue_is_the_last_event(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt(seed, account, job_id, state="failed", final=0, ended_at=seed.clock.now(), retry_at=seed.clock.now() + 5000)
    for seq in (2, 3):
        event(seed, job_id, seq)
    seed.clock.advance(1)
    cancel(seed, job_id)
    seen, after = [], 1
    for _ in range(3):
        page = api.call("GET", f"/jobs/{job_id}/events?after={after}&limit=1&wait=15", token).get_json()
        seen.append((page["last"], page["events"][0]["type"], page["final"]))
        after = page["last"]
    assert [(last, final) for last, _, final in seen] == [(2, False), (3, False), (4, True)]
    assert seen[-1][1] == "job.cancel_requested"
    assert page["events"][0]["at"] == rfc3339(seed.clock.now())
    again = api.call("GET", f"/jobs/{job_id}/events?after=4&wait=15", token).get_json()
    assert again == {"events": [], "last": 4, "final": True}


@pytest.mark.req("JOB-1")
def test_a_cancel_that_scheduler_told_of_isnt_told_twice(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt(seed, account, job_id, state="cancelled", final=1, ended_at=seed.clock.now())
    cancel(seed, job_id)
    event(seed, job_id, 2, "job.cancel_requested")
    event(seed, job_id, 3, "attempt.finished")
    page = api.call("GET", f"/jobs/{job_id}/events", token).get_json()
    assert [each["type"] for each in page["events"]] == ["job.submitted", "job.cancel_requested", "attempt.finished"]


@pytest.mark.req("JOB-1")
def test_a_job_cancelled_before_placement_is_final(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    cancel(seed, job_id)
    page = api.call("GET", f"/jobs/{job_id}/events?after=1&wait=15", token).get_json()
    assert ([each["type"] for each in page["events"]], page["last"], page["final"]) == (
        ["job.cancel_requested"], 2, True
    )  # fmt: skip
    log = api.call("GET", f"/jobs/{job_id}/logs?wait=15", token)
    assert (log.data, log.headers["X-Log-Attempt"], log.headers["X-Log-Complete"]) == (b"", "0", "true")


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize("query", ["after=-1", "after=2147483648", "after=x", "limit=0", "limit=1001", "wait=x"])
def test_bad_event_parameters(api: Api, token: str, account: str, seed: Seed, query: str) -> None:
    assert api.call("GET", f"/jobs/{seed.job(account)}/events?{query}", token).status_code == 400


@pytest.mark.req("WORK-6")
def test_a_log_is_read_byte_for_byte(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id, chunks = seed.job(account), [b"one\xff\x00", "ğ摘\r\n".encode(), b"three", b"4" * 5000]
    whole = b"".join(chunks)
    attempt(seed, account, job_id)
    log(seed, account, job_id, chunks)
    answer = api.call("GET", f"/jobs/{job_id}/logs", token)
    assert answer.data == whole and answer.mimetype == "application/octet-stream"
    assert {name: value for name, value in answer.headers.items() if name.startswith("X-Log")} == {
        "X-Log-Attempt": "1", "X-Log-Offset": "0", "X-Log-Next-Offset": str(len(whole)),
        "X-Log-Size": str(len(whole)), "X-Log-Complete": "false", "X-Log-Truncated": "false",
    }  # fmt: skip
    read, offset = b"", 0
    while offset < len(whole):
        part = api.call("GET", f"/jobs/{job_id}/logs?offset={offset}&limit=7", token)
        read, offset = read + part.data, int(part.headers["X-Log-Next-Offset"])
    assert read == whole
    tail = api.call("GET", f"/jobs/{job_id}/logs?tail=12", token)
    assert tail.data == whole[-12:] and tail.headers["X-Log-Offset"] == str(len(whole) - 12)
    assert api.call("GET", f"/jobs/{job_id}/logs?tail=999999", token).data == whole
    past = api.call("GET", f"/jobs/{job_id}/logs?offset=999999", token)
    assert past.status_code == 200 and past.data == b"" and past.headers["X-Log-Size"] == str(len(whole))


@pytest.mark.req("WORK-6")
def test_only_acknowledged_bytes_are_shown(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt(seed, account, job_id)
    log(seed, account, job_id, [b"0123456789"], log_bytes=4)
    assert api.call("GET", f"/jobs/{job_id}/logs", token).data == b"0123"


@pytest.mark.req("WORK-6", "JOB-7")
def test_the_latest_attempt_is_the_default_and_earlier_ones_stay(
    api: Api, token: str, account: str, seed: Seed
) -> None:
    job_id, now = seed.job(account), seed.clock.now()
    attempt(seed, account, job_id, 1, state="failed", final=0, ended_at=now)
    attempt(seed, account, job_id, 2)
    log(seed, account, job_id, [b"first"], 1, ended_at=now, log_truncated=1)
    log(seed, account, job_id, [b"second"], 2)
    log(seed, account, job_id, [b"rank 1"], 2, rank=1)
    latest = api.call("GET", f"/jobs/{job_id}/logs", token)
    assert (latest.data, latest.headers["X-Log-Attempt"], latest.headers["X-Log-Complete"]) == (b"second", "2", "false")
    assert api.call("GET", f"/jobs/{job_id}/logs?rank=1", token).data == b"rank 1"
    first = api.call("GET", f"/jobs/{job_id}/logs?attempt=1&limit=3", token)
    assert (first.data, first.headers["X-Log-Complete"], first.headers["X-Log-Truncated"]) == (b"fir", "false", "true")
    rest = api.call("GET", f"/jobs/{job_id}/logs?attempt=1&offset=3", token)
    assert (rest.data, rest.headers["X-Log-Complete"]) == (b"st", "true")
    for query in ("attempt=3", f"attempt={2**31 - 1}", "rank=2", "attempt=1&rank=1"):
        assert api.call("GET", f"/jobs/{job_id}/logs?{query}", token).status_code == 404


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize(
    "query",
    [
        "attempt=0",
        "attempt=2147483648",
        "rank=2147483648",
        "rank=-1",
        "offset=-1",
        "limit=0",
        "limit=4194305",
        "tail=x",
        "tail=1&offset=1",
        "wait=x",
    ],
)
def test_bad_log_parameters(api: Api, token: str, account: str, seed: Seed, query: str) -> None:
    assert api.call("GET", f"/jobs/{seed.job(account)}/logs?{query}", token).status_code == 400


@pytest.mark.req("WORK-6")
def test_a_waiting_read_follows_a_log(api: Api, token: str, account: str, seed: Seed) -> None:
    job_id = seed.job(account)
    attempt_id = attempt(seed, account, job_id)
    log(seed, account, job_id, [], log_bytes=0)
    answers: list[Any] = []

    def follow() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        answers.append(
            api.app.test_client().get(f"/api/research/v1/jobs/{job_id}/logs?tail=0&wait=15", headers=headers)
        )

    thread = threading.Thread(target=follow)
    started = time.monotonic()
    thread.start()
    while api.waiters.waiting == 0 and time.monotonic() < started + 10:
        time.sleep(0.005)
    seed.insert(schema.log_chunks, attempt_id=attempt_id, rank=0, start=0, size=5, codec="raw", data=b"hello")
    with seed.engine.begin() as connection:
        connection.execute(schema.leases.update().values(log_bytes=5))
    api.waker.wake([f"log:{attempt_id}:0"])
    thread.join(10)
    assert answers[0].data == b"hello"


@pytest.mark.req("JOB-1")
def test_a_log_of_many_small_chunks_comes_in_several_answers(
    api: Api, token: str, account: str, seed: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mingora_api.store.logs.MAX_CHUNKS", 3)
    job_id, now = seed.job(account), seed.clock.now()
    attempt(seed, account, job_id, state="succeeded", final=1, ended_at=now)
    log(seed, account, job_id, [b"ab"] * 8, ended_at=now)
    read, complete = b"", "false"
    while complete == "false":
        part = api.call("GET", f"/jobs/{job_id}/logs?offset={len(read)}", token)
        assert 0 < len(part.data) <= 6
        read, complete = read + part.data, part.headers["X-Log-Complete"]
    assert read == b"ab" * 8
