"""Attempts and their leases as rows: one function loads, applies the state machine, and writes state and events.

Locks are always taken in one order: the job's row, the attempt's, its leases by rank, then nodes by id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mingora_common.db.schema import attempts, events, leases, log_chunks, work_tokens
from mingora_common.db.views import job_status
from mingora_common.errors import LEASE_LOST, ServiceError
from mingora_scheduler.domain import retry
from mingora_scheduler.domain.attempt import (
    NOT_CLAIMED,
    Attempt,
    Event,
    Note,
    Outcome,
    Rank,
    RankState,
    Reason,
    Refused,
    Report,
    State,
    Step,
    apply,
)
from mingora_scheduler.domain.leases import LOG_TAIL_BYTES
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.rows import Row

# Event 1 of a job, job.submitted, is api's and not stored.
FIRST_SEQ = 2
CANCEL_REQUESTED = "job.cancel_requested"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An attempt under lock, and the rows it was read from (leases by rank)."""

    attempt: Attempt
    row: Row
    leases: Sequence[Row]


def load(connection: sa.Connection, attempt_id: str) -> Loaded | None:
    """Lock an attempt and its leases, and read them."""
    query = sa.select(attempts).where(attempts.c.id == attempt_id).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        return None
    query = sa.select(leases).where(leases.c.attempt_id == attempt_id).order_by(leases.c.rank).with_for_update()
    rows = connection.execute(query).all()
    names = {entry["rank"]: entry["nodeName"] for entry in row.detail["ranks"]}
    attempt = Attempt(
        number=row.number,
        state=State(row.state),
        ranks=tuple(_rank(lease, names[lease.rank]) for lease in rows),
        created_at=row.created_at,
        ready_deadline_at=row.ready_deadline_at,
        stop_deadline_at=row.stop_deadline_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        cause=_reason(row),
    )
    return Loaded(attempt, row, rows)


def advance(connection: sa.Connection, loaded: Loaded, event: Event, now: int, changes: Changes) -> Attempt:
    """Apply ``event`` and write the new state with its events, in the caller's transaction.

    Raises:
        ServiceError: ``lease_lost`` when the event doesn't fit, with nothing changed.
    """
    try:
        step = apply(loaded.attempt, event, now)
    except Refused:
        raise ServiceError(LEASE_LOST) from None
    if step.attempt != loaded.attempt or step.notes:
        _save(connection, loaded, step, now, changes)
    return step.attempt


def _save(connection: sa.Connection, loaded: Loaded, step: Step, now: int, changes: Changes) -> None:
    before, after, row = loaded.attempt, step.attempt, loaded.row
    for old, new in zip(before.ranks, after.ranks, strict=True):
        if old != new:
            _save_rank(connection, row, old, new, now)
            changes.topics.add(f"lease:{new.lease_id}")
            changes.leases_lost += new.state is RankState.LOST
    values: dict[str, Any] = {
        "state": after.state.value,
        "reason_code": after.cause and after.cause.code,
        "reason_message": after.cause and after.cause.message[:2000],
        "stop_deadline_at": after.stop_deadline_at,
        "started_at": after.started_at,
        "ended_at": after.ended_at,
        "detail": {**row.detail, **detail(after.ranks)},
    }
    notes = list(step.notes)
    if after.terminal:
        values |= _ending(connection, row, after, now, notes)
        changes.ended_attempts.add(row.id)
        changes.place_for.add(row.account_id)
    if after.state is not before.state:
        changes.topics |= {f"lease:{rank.lease_id}" for rank in after.ranks}
    update = sa.update(attempts).where(attempts.c.id == row.id, attempts.c.state == before.state.value).values(values)
    if connection.execute(update).rowcount != 1:
        raise ServiceError(LEASE_LOST)
    write_events(connection, row.job_id, notes, now)
    changes.topics.add(f"job:{row.job_id}")


def _save_rank(connection: sa.Connection, row: Row, old: Rank, new: Rank, now: int) -> None:
    values: dict[str, Any] = {
        "state": new.state.value,
        "expires_at": new.expires_at,
        "ready_at": new.ready_at,
        "started_at": new.started_at,
        "ended_at": new.ended_at,
        "reason_code": new.reason and new.reason.code,
        "reason_message": new.reason and new.reason.message[:2000],
    }
    if new.report is not None:
        values |= {
            "outcome": new.report.outcome.value,
            "exit_code": new.report.exit_code,
            "signal": new.report.signal,
            "results": list(new.report.results),
            "usage": new.report.usage,
        }
    guard = (leases.c.id == new.lease_id, leases.c.attempt == row.number, leases.c.state == old.state.value)
    if connection.execute(sa.update(leases).where(*guard).values(values)).rowcount != 1:
        raise ServiceError(LEASE_LOST)
    if old.live and not new.live:
        tokens = (work_tokens.c.lease_id == new.lease_id, work_tokens.c.revoked_at.is_(None))
        connection.execute(sa.update(work_tokens).where(*tokens).values(revoked_at=now))


def _ending(connection: sa.Connection, row: Row, after: Attempt, now: int, notes: list[Note]) -> dict[str, Any]:
    """What an attempt's end adds: its results and usage, and whether it was the job's last."""
    reports = [(rank.rank, rank.report) for rank in after.ranks if rank.report is not None]
    codes = [report.exit_code for _, report in reports if report.exit_code is not None]
    values: dict[str, Any] = {
        "exit_code": next((code for code in codes if code != 0), 0 if codes else None),
        "results": [{**entry, "rank": rank} for rank, report in reports for entry in report.results],
        "usage": {
            "cpuSeconds": round(sum(report.usage.get("cpuSeconds", 0) for _, report in reports), 3),
            "maxMemoryMiB": max((report.usage.get("maxMemoryMiB", 0) for _, report in reports), default=0),
        },
        "final": 1,
        "retry_at": None,
    }
    query = sa.select(job_status.c.spec, job_status.c.cancel_requested_at).where(job_status.c.job_id == row.job_id)
    job = connection.execute(query).first()
    if job is not None and job.cancel_requested_at is not None:
        if not cancel_told(connection, row.job_id):  # the job ended before the request was carried out
            notes.insert(0, Note(CANCEL_REQUESTED, {}))
        if after.cause is not None and after.cause.code in retry.NOT_THE_JOBS_FAULT:
            values["final"] = 0  # nothing follows it: the cancel request is the job's end
        return values
    at = None if job is None else _retry_at(connection, row, after, job.spec, now)
    if at is not None:
        values |= {"final": 0, "retry_at": at}
        notes.append(Note("job.retrying", {"attempt": after.number, "inSeconds": (at - now) / 1000}))
    return values


def _retry_at(connection: sa.Connection, row: Row, after: Attempt, spec: dict[str, Any], now: int) -> int | None:
    if after.state is not State.FAILED:
        return None
    policy = retry.Policy.of(spec)
    earlier = sa.select(sa.func.count()).where(
        attempts.c.job_id == row.job_id, attempts.c.number < row.number, attempts.c.reason_code != NOT_CLAIMED
    )
    failures = connection.execute(earlier).scalar_one()
    tails = [log_tail(connection, row.id, rank.rank) for rank in after.ranks] if policy.log_patterns else []
    return retry.retry_at(policy, after, failures, tails, now)


def cancel_told(connection: sa.Connection, job_id: str) -> bool:
    """Whether the job's history tells of its cancel request."""
    told = sa.select(events.c.seq).where(events.c.job_id == job_id, events.c.type == CANCEL_REQUESTED)
    return connection.execute(told.limit(1)).first() is not None


def log_tail(connection: sa.Connection, attempt_id: str, rank: int) -> bytes:
    """The last 64 KiB of a rank's log, of an attempt that isn't archived yet."""
    chunks = sa.select(log_chunks.c.data).where(log_chunks.c.attempt_id == attempt_id, log_chunks.c.rank == rank)
    tail = b""
    # A log written byte by byte has many chunks; what they hold is bounded, and so is their number.
    for (data,) in connection.execute(chunks.order_by(log_chunks.c.start.desc()).limit(LOG_TAIL_BYTES)):
        tail = bytes(data) + tail
        if len(tail) >= LOG_TAIL_BYTES:
            break
    return tail[-LOG_TAIL_BYTES:]


def write_events(connection: sa.Connection, job_id: str, notes: Sequence[Note], now: int) -> None:
    """Append to a job's history. The caller holds the lock of the job's row or of its live attempt."""
    if not notes:
        return
    last = connection.execute(sa.select(sa.func.max(events.c.seq)).where(events.c.job_id == job_id)).scalar()
    first = FIRST_SEQ if last is None else last + 1
    rows = [
        {"job_id": job_id, "seq": seq, "at": now, "type": note.type, "data": note.data}
        for seq, note in enumerate(notes, first)
    ]
    connection.execute(sa.insert(events), rows)


def detail(ranks: Sequence[Rank]) -> dict[str, Any]:
    """What api shows of an attempt's ranks."""
    return {
        "ranks": [
            {
                "rank": rank.rank,
                "nodeId": rank.node_id,
                "nodeName": rank.node_name,
                "state": rank.state.value,
                "exitCode": rank.report.exit_code if rank.report is not None else None,
            }
            for rank in ranks
        ]
    }


def change(
    connection: sa.Connection, attempt_id: str, event_of: Callable[[Attempt], Event | None], now: int, changes: Changes
) -> None:
    """Load, and apply the event that ``event_of`` makes of the state, if any; a gone attempt is passed over."""
    loaded = load(connection, attempt_id)
    event = event_of(loaded.attempt) if loaded is not None else None
    if loaded is not None and event is not None:
        advance(connection, loaded, event, now, changes)


def _rank(row: Row, node_name: str) -> Rank:
    report = None
    if row.outcome is not None:
        report = Report(
            Outcome(row.outcome), _reason(row), row.exit_code, row.signal, tuple(row.results or ()), row.usage or {}
        )
    return Rank(
        rank=row.rank,
        lease_id=row.id,
        node_id=row.node_id,
        node_name=node_name,
        state=RankState(row.state),
        expires_at=row.expires_at,
        ready_at=row.ready_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        reason=_reason(row),
        report=report,
    )


def _reason(row: Row) -> Reason | None:
    return None if row.reason_code is None else Reason(row.reason_code, row.reason_message or "")
