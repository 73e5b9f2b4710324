"""Logs by offset, their cap, their archive, and purging."""

from __future__ import annotations

import random
import zlib

import pytest
import sqlalchemy as sa
from scheduler_platform import V1, Platform, Worker
from support import bearer

from mingora_common.db import schema
from mingora_common.db.views import job_log, job_log_chunk
from mingora_scheduler.domain.leases import LOG_CHUNK_BYTES
from mingora_scheduler.store import logs, purge, sweeps
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.leases import Holder
from mingora_scheduler.store.logs import LogStore


def _running(platform: Platform, worker: Worker) -> str:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    return job


def _stored(platform: Platform, attempt_id: str) -> bytes:
    query = sa.select(job_log_chunk).where(job_log_chunk.c.attempt_id == attempt_id).order_by(job_log_chunk.c.start)
    data = b""
    for row in platform.all(query):
        assert row.start == len(data)
        part = zlib.decompress(row.data) if row.codec == "zlib" else bytes(row.data)
        assert len(part) == row.size
        data += part
    return data


@pytest.mark.req("WORK-6")
def test_bytes_are_kept_once_and_in_order(platform: Platform, worker: Worker) -> None:
    _running(platform, worker)
    everything = random.Random(1).randbytes(5000)
    acked = 0
    for start, end in [(0, 100), (0, 100), (50, 300), (300, 300), (10, 20), (299, 5000)]:
        acked = worker.log(start, everything[start:end]).get_json()["acked"]
    assert acked == 5000
    gap = worker.log(5001, b"x")
    assert (gap.status_code, gap.get_json()["error"]["code"]) == (409, "log_gap")
    assert gap.get_json()["error"]["acked"] == 5000
    assert worker.log(0, b"").get_json() == {"acked": 5000}
    assert _stored(platform, worker.lease["attemptId"]) == everything


@pytest.mark.req("WORK-6")
def test_the_bodys_size_is_checked(platform: Platform, worker: Worker) -> None:
    _running(platform, worker)
    assert worker.log(0, bytes(LOG_CHUNK_BYTES + 1)).status_code == 413
    assert worker.log(0, bytes(LOG_CHUNK_BYTES)).status_code == 200
    path = f"{V1}/nodes/{worker.id}/logs"
    short = platform.client.put(
        path, query_string={**worker.named(), "offset": 0}, headers=bearer(worker.lease["token"]),
        environ_overrides={"CONTENT_LENGTH": "10"}, data=b"abc",
    )  # fmt: skip
    assert short.status_code == 400
    none = platform.client.put(
        path, query_string={**worker.named(), "offset": 0}, headers=bearer(worker.lease["token"])
    )
    assert none.status_code == 411


@pytest.mark.req("WORK-6")
def test_past_the_cap_bytes_are_passed_over_and_it_is_said_once(platform: Platform, worker: Worker) -> None:
    job = _running(platform, worker)
    store = LogStore(platform.database, platform.clock, cap=10)
    holder = Holder(platform.account, worker.id, worker.lease["leaseId"], 1, "tok_x")
    changes = Changes()
    assert store.append(holder, 0, b"12345678", False, changes) == 8
    assert store.append(holder, 8, b"9abcdef", False, changes) == 10
    assert store.append(holder, 10, b"more", False, changes) == 10
    assert platform.events(job).count("log.truncated") == 1
    row = platform.one(sa.select(job_log).where(job_log.c.job_id == job))
    assert (row.size, row.truncated, row.ended) == (10, 1, 0)
    assert _stored(platform, worker.lease["attemptId"]) == b"123456789a"


@pytest.mark.req("WORK-6")
def test_a_worker_may_say_that_its_log_is_cut(platform: Platform, worker: Worker) -> None:
    job = _running(platform, worker)
    assert worker.log(0, b"abc", truncated=1).get_json() == {"acked": 3}
    assert worker.log(3, b"", truncated=1).get_json() == {"acked": 3}
    assert platform.events(job).count("log.truncated") == 1


@pytest.mark.req("WORK-6")
def test_archiving_keeps_every_byte_and_can_be_repeated(platform: Platform, worker: Worker) -> None:
    _running(platform, worker)
    everything = random.Random(2).randbytes(LOG_CHUNK_BYTES // 2) + b"a" * LOG_CHUNK_BYTES
    attempt = worker.lease["attemptId"]
    sent = 0
    for size in [1, 2, 3, 200_000, 400_000, 1, LOG_CHUNK_BYTES]:
        worker.log(sent, everything[sent : sent + size])
        sent = min(sent + size, len(everything))
    assert logs.archive(platform.database, attempt) is False and sweeps.unarchived(platform.database) == []
    worker.report(logBytes=len(everything))
    assert sweeps.unarchived(platform.database) == [attempt]
    assert logs.archive(platform.database, attempt, most=1) is True
    assert _stored(platform, attempt) == everything
    assert sweeps.unarchived(platform.database) == [attempt]
    assert logs.archive(platform.database, attempt) is False
    codecs = platform.all(sa.select(job_log_chunk.c.codec))
    assert [row.codec for row in codecs] == ["zlib", "zlib"]
    assert logs.archive(platform.database, attempt) is False and sweeps.unarchived(platform.database) == []
    assert _stored(platform, attempt) == everything


@pytest.mark.req("JOB-1")
def test_purging_leaves_nothing_of_a_deleted_job_and_others_alone(platform: Platform, worker: Worker) -> None:
    kept = _running(platform, worker)
    worker.log(0, b"kept")
    worker.report(logBytes=4)
    before = platform.dump()
    gone = platform.seed.job(platform.account, key="gone")
    platform.clock.advance(1)
    platform.waiting(worker)
    worker.run()
    for start in range(70):
        worker.log(start, b"x")
    worker.report(logBytes=70)
    assert purge.purge(platform.database, gone) is False
    with platform.seed.engine.begin() as connection:
        connection.execute(sa.delete(schema.jobs).where(schema.jobs.c.id == gone))
    assert sweeps.deleted_jobs(platform.database) == [gone]
    assert purge.purge(platform.database, gone) is True
    after = platform.dump()
    for table in ("attempts", "leases", "events", "log_chunks"):
        assert after[table] == before[table]
    assert len(after["work_tokens"]) == len(before["work_tokens"])
    assert sweeps.deleted_jobs(platform.database) == [] and platform.status(kept).state == "succeeded"
