"""What fell behind: each function finds a bounded number of rows that a lost hint or a dead process left, by id."""

from __future__ import annotations

import sqlalchemy as sa

from mingora_common.clock import MINUTE
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, events, leases, log_chunks, nodes
from mingora_common.db.views import job_status
from mingora_scheduler.domain.attempt import CancelRequested, Expired, Note, State
from mingora_scheduler.domain.leases import LEASE_TTL, READY_DEADLINE, STOP_DEADLINE, WAITING
from mingora_scheduler.store.attempts import CANCEL_REQUESTED, advance, cancel_told, load, write_events
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.placement import lock_job

AT_ONCE = 200
PURGED_AT_ONCE = 100
ARCHIVED_AT_ONCE = 10
CLOCK_SLACK = MINUTE
_AHEAD: tuple[tuple[sa.Column[int], sa.ColumnElement[bool], int], ...] = (
    (leases.c.expires_at, leases.c.ended_at.is_(None), LEASE_TTL),
    (attempts.c.ready_deadline_at, attempts.c.ended_at.is_(None), READY_DEADLINE),
    (attempts.c.stop_deadline_at, attempts.c.ended_at.is_(None), STOP_DEADLINE),
    (nodes.c.claimed_at, nodes.c.claimed_at.is_not(None), 0),
)
_STOPPABLE = (State.RESERVED.value, State.RUNNING.value)


def turn_back(database: Database, now: int) -> None:
    """Bring back what lies further ahead than any rule sets it: the clock has been set back, perhaps by a day.

    Else a worker that died would keep its lease, and a node that left would be placed on, until the clock caught up.
    """
    for column, live, ahead in _AHEAD:
        wrong = live & (column > now + ahead + CLOCK_SLACK)
        with database.read() as connection:
            if connection.execute(sa.select(column).where(wrong).limit(1)).first() is None:
                continue
        with database.write() as connection:
            # Whoever holds a row is about to set it right, or the next sweep does: waiting for several could deadlock.
            key = column.table.primary_key.columns[0]
            free = sa.select(key).where(wrong).limit(AT_ONCE).with_for_update(skip_locked=True)
            ids = list(connection.execute(free).scalars())
            connection.execute(sa.update(column.table).where(key.in_(ids)).values({column.name: now + ahead}))


def overdue(database: Database, now: int) -> list[str]:
    """Attempts with a lease or a deadline that has passed."""
    late_lease = sa.select(leases.c.attempt_id).where(leases.c.ended_at.is_(None), leases.c.expires_at <= now)
    late_ready = (attempts.c.state == State.RESERVED.value) & (attempts.c.ready_deadline_at <= now)
    late_attempt = sa.select(attempts.c.id).where(
        attempts.c.ended_at.is_(None), late_ready | (attempts.c.stop_deadline_at <= now)
    )
    with database.read() as connection:
        return list(connection.execute(sa.union(late_lease, late_attempt).limit(AT_ONCE)).scalars())


def expire(database: Database, attempt_id: str, now: int) -> Changes:
    """End what has run out of time in an attempt."""
    changes = Changes()
    with database.write() as connection:
        loaded = load(connection, attempt_id)
        if loaded is not None:
            advance(connection, loaded, Expired(), now, changes)
    return changes


def waiting_accounts(database: Database, now: int) -> list[str]:
    """Accounts with a node that waits for work."""
    busy = sa.exists().where(leases.c.node_id == nodes.c.id, leases.c.ended_at.is_(None))
    query = (
        sa.select(nodes.c.account_id)
        .where(nodes.c.claimed_at > now - WAITING, nodes.c.pause_reason.is_(None), ~busy)
        .distinct()
        .limit(AT_ONCE)
    )
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def cancels_left(database: Database) -> list[str]:
    """Jobs with a cancel request whose attempt goes on all the same."""
    query = (
        sa.select(attempts.c.job_id)
        .join(job_status, job_status.c.job_id == attempts.c.job_id)
        .where(
            attempts.c.ended_at.is_(None),
            attempts.c.state.in_(_STOPPABLE),
            job_status.c.cancel_requested_at.is_not(None),
        )
        .limit(AT_ONCE)
    )
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def cancel(database: Database, job_id: str, now: int) -> Changes:
    """Carry out a committed cancel request: write it into the history once, and stop the live attempt.

    Without one there is nothing to do: the job has ended, or the request itself has ended it in the queue.
    """
    changes = Changes()
    with database.write() as connection:
        lock_job(connection, job_id)
        requested = sa.select(job_status.c.cancel_requested_at).where(job_status.c.job_id == job_id)
        if connection.execute(requested).scalar() is None:
            return changes
        live = sa.select(attempts.c.id).where(attempts.c.job_id == job_id, attempts.c.ended_at.is_(None))
        attempt_id = connection.execute(live).scalar()
        loaded = load(connection, attempt_id) if attempt_id is not None else None
        if loaded is None or loaded.attempt.terminal:
            return changes
        if not cancel_told(connection, job_id):
            write_events(connection, job_id, [Note(CANCEL_REQUESTED, {})], now)
            changes.topics.add(f"job:{job_id}")
        advance(connection, loaded, CancelRequested(), now, changes)
    return changes


def unarchived(database: Database) -> list[str]:
    """Ended attempts whose log isn't compressed yet."""
    query = (
        sa.select(log_chunks.c.attempt_id)
        .join(attempts, attempts.c.id == log_chunks.c.attempt_id)
        .where(log_chunks.c.codec == sa.literal_column("'raw'"), attempts.c.ended_at.is_not(None))
        .distinct()
        .limit(ARCHIVED_AT_ONCE)
    )
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def deleted_jobs(database: Database) -> list[str]:
    """Jobs that api has deleted and of which something is still here."""
    found: set[str] = set()
    with database.read() as connection:
        for table in (attempts, events):
            there = sa.exists().where(job_status.c.job_id == table.c.job_id)
            query = sa.select(table.c.job_id).where(~there).distinct().limit(PURGED_AT_ONCE)
            found.update(connection.execute(query).scalars())
    return sorted(found)
