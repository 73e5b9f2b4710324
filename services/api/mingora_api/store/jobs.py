"""Jobs: inserted once, never changed, removed when their owner deletes them; read through ``job_status``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from mingora_api.domain.jobs import TERMINAL
from mingora_api.store import accounts, audit
from mingora_api.store.audit import Actor
from mingora_common.db.schema import cancel_requests, jobs
from mingora_common.db.views import job_event, job_isolation, job_log, job_status
from mingora_common.errors import JOB_NOT_FINISHED, NOT_FOUND, QUOTA_EXCEEDED, ServiceError

CANCEL_REQUESTED = "job.cancel_requested"

_S = job_status.c
_SUMMARY = [column for column in _S if column.name not in ("spec", "inputs", "results")]


class Position(NamedTuple):
    """A job's place in the list, newest first."""

    created_at: int
    job_id: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A job before it is inserted."""

    job_id: str
    account_id: str
    tenant_id: str
    key: str
    fingerprint: str
    spec: dict[str, Any]
    inputs: list[dict[str, Any]]


class Existing(NamedTuple):
    """The job that has a key already."""

    job_id: str
    fingerprint: str


def by_key(connection: sa.Connection, account_id: str, key: str) -> Existing | None:
    """The account's job of this idempotency key."""
    query = sa.select(jobs.c.id, jobs.c.fingerprint).where(
        jobs.c.account_id == account_id, jobs.c.idempotency_key == key
    )
    row = connection.execute(query).first()
    return None if row is None else Existing(row.id, row.fingerprint)


def check_room(connection: sa.Connection, account_id: str, max_jobs: int) -> None:
    """Raise ``quota_exceeded`` when the account holds ``max_jobs`` jobs."""
    query = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.account_id == account_id)
    used = connection.execute(query).scalar_one()
    if used >= max_jobs:
        raise ServiceError(QUOTA_EXCEEDED, limit="maxJobs", allowed=max_jobs, used=used)


def insert(connection: sa.Connection, now: int, submission: Submission, max_jobs: int) -> Existing | None:
    """Insert the job, or give the one that won the race for its key; raises ``quota_exceeded``.

    The account's row is held, so that two submits can't both take a key or the last place.
    """
    accounts.lock(connection, submission.account_id)
    existing = by_key(connection, submission.account_id, submission.key)
    if existing is not None:
        return existing
    check_room(connection, submission.account_id, max_jobs)
    connection.execute(
        sa.insert(jobs).values(
            id=submission.job_id,
            account_id=submission.account_id,
            tenant_id=submission.tenant_id,
            idempotency_key=submission.key,
            fingerprint=submission.fingerprint,
            name=submission.spec["name"],
            priority=submission.spec.get("priority", 0),
            spec=submission.spec,
            inputs=submission.inputs,
            created_at=now,
        )
    )
    return None


def get(connection: sa.Connection, account_id: str, job_id: str) -> sa.Row[Any]:
    """The job with its latest attempt; raises ``not_found``."""
    row = connection.execute(_mine(sa.select(job_status), account_id, job_id)).first()
    if row is None:
        raise ServiceError(NOT_FOUND)
    return row


def get_summary(connection: sa.Connection, account_id: str, job_id: str) -> sa.Row[Any]:
    """``get`` without spec, inputs and results."""
    row = connection.execute(_mine(sa.select(*_SUMMARY), account_id, job_id)).first()
    if row is None:
        raise ServiceError(NOT_FOUND)
    return row


def page(
    connection: sa.Connection,
    account_id: str,
    limit: int,
    *,
    before: Position | None = None,
    state: str | None = None,
    key: str | None = None,
) -> list[sa.Row[Any]]:
    """At most ``limit`` of the account's jobs, newest first, without spec, inputs and results."""
    query = sa.select(*_SUMMARY).where(_S.account_id == account_id)
    if before is not None:
        older = sa.or_(_S.created_at < before.created_at, _S.job_id < before.job_id)
        query = query.where(_S.created_at <= before.created_at, older)
    if state is not None:
        query = query.where(_S.state == state)
    if key is not None:
        query = query.where(_S.idempotency_key == key)
    return list(connection.execute(query.order_by(_S.created_at.desc(), _S.job_id.desc()).limit(limit)))


def log_sizes(connection: sa.Connection, attempt_ids: list[str]) -> dict[tuple[str, int], int]:
    """Acknowledged log bytes by attempt and rank."""
    query = sa.select(job_log.c.attempt_id, job_log.c.rank, job_log.c.size).where(job_log.c.attempt_id.in_(attempt_ids))
    return {(row.attempt_id, row.rank): row.size for row in connection.execute(query)}


def isolation(connection: sa.Connection, attempt_id: str) -> dict[int, dict[str, Any]]:
    """The profiles of an attempt's ranks that run or ran in containers, by rank."""
    columns = job_isolation.c
    query = sa.select(columns.rank, columns.isolation).where(columns.attempt_id == attempt_id)
    return {row.rank: row.isolation for row in connection.execute(query)}


def events(connection: sa.Connection, job_id: str, after: int, limit: int) -> list[sa.Row[Any]]:
    """At most ``limit`` of scheduler's events with a number over ``after``, in order."""
    columns = job_event.c
    query = sa.select(job_event).where(columns.job_id == job_id, columns.seq > after)
    return list(connection.execute(query.order_by(columns.seq).limit(limit)))


def cancel_event(connection: sa.Connection, job: sa.Row[Any]) -> int | None:
    """The number of the event of a cancel request that ended the job in the queue; None when there is none.

    Scheduler has no part in such an end, so it is told from api's own row, like the submission; it is the job's last.
    """
    if job.state != "cancelled":
        return None
    columns = job_event.c
    told = sa.func.max(sa.case((columns.type == CANCEL_REQUESTED, 1), else_=0))
    query = sa.select(sa.func.max(columns.seq).label("last"), told.label("told"))
    row = connection.execute(query.where(columns.job_id == job.job_id)).one()
    return None if row.told else (row.last or 1) + 1


def cancel(connection: sa.Connection, now: int, account_id: str, job_id: str, actor: Actor) -> bool:
    """Ask for the job's end unless it has ended; whether it is still to end. Raises ``not_found``."""
    status = _lock(connection, account_id, job_id)
    if status.state in TERMINAL:
        return False
    if status.cancel_requested_at is None:
        connection.execute(sa.insert(cancel_requests).values(job_id=job_id, at=now, actor=actor.name))
        audit.record(connection, now, actor, "job.cancel", job_id)
    return True


def delete(connection: sa.Connection, now: int, account_id: str, job_id: str, actor: Actor) -> str | None:
    """Remove a job that has ended; the id of its latest attempt. Raises ``not_found`` or ``job_not_finished``."""
    status = _lock(connection, account_id, job_id)
    if status.state not in TERMINAL:
        raise ServiceError(JOB_NOT_FINISHED)
    connection.execute(sa.delete(cancel_requests).where(cancel_requests.c.job_id == job_id))
    connection.execute(sa.delete(jobs).where(jobs.c.id == job_id))
    audit.record(connection, now, actor, "job.delete", job_id, name=status.name, state=status.state)
    return None if status.attempt_id is None else str(status.attempt_id)


def _lock(connection: sa.Connection, account_id: str, job_id: str) -> sa.Row[Any]:
    held = sa.select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.account_id == account_id).with_for_update()
    if connection.execute(held).first() is None:
        raise ServiceError(NOT_FOUND)
    return get_summary(connection, account_id, job_id)


def _mine(query: sa.Select[Any], account_id: str, job_id: str) -> sa.Select[Any]:
    return query.where(_S.job_id == job_id, _S.account_id == account_id)
