"""Logs as rows: appended by offset while a rank lives, archived as compressed segments once its attempt has ended."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import sqlalchemy as sa

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, leases, log_chunks
from mingora_common.errors import LEASE_LOST, LOG_GAP, ServiceError
from mingora_scheduler.domain.attempt import Note
from mingora_scheduler.domain.leases import LOG_CAP_BYTES, LOG_CHUNK_BYTES
from mingora_scheduler.store.attempts import write_events
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.leases import Holder, guards
from mingora_scheduler.store.rows import Row

RAW, ZLIB = "raw", "zlib"
# A tenth of a second or two of work: placing, in the same queue, mustn't wait long for it.
SEGMENTS_AT_ONCE = 4


class LogStore:
    """Appends to logs.

    Args:
        cap: how many bytes of a rank's log are kept; what comes after them is passed over and said to be missing.
    """

    def __init__(self, database: Database, clock: Clock, cap: int = LOG_CAP_BYTES) -> None:
        self._database = database
        self._clock = clock
        self._cap = cap

    def append(self, holder: Holder, offset: int, data: bytes, truncated: bool, changes: Changes) -> int:
        """Store what is new of ``data``, which begins at ``offset``; returns the acknowledged end.

        Raises:
            ServiceError: ``lease_lost``, or ``log_gap`` (with ``acked``) when bytes before ``offset`` are missing.
        """
        truncated = truncated or offset + len(data) > self._cap
        with self._database.write() as connection:
            if truncated:
                self._lock_attempt(connection, holder)
            query = sa.select(leases).where(*guards(holder, self._clock.now())).with_for_update()
            lease = connection.execute(query).first()
            if lease is None:
                raise ServiceError(LEASE_LOST)
            acked = lease.log_bytes
            if offset > acked:
                raise ServiceError(LOG_GAP, acked=acked)
            new = data[acked - offset : self._cap - offset]
            if new:
                self._insert(connection, lease, new)
                changes.topics.add(f"log:{lease.attempt_id}:{lease.rank}")
            if truncated and not lease.log_truncated:
                self._mark_truncated(connection, lease, changes)
        return int(acked + len(new))

    def _lock_attempt(self, connection: sa.Connection, holder: Holder) -> None:
        """Before the lease, as everywhere: the event of the truncation is written under this lock."""
        of_lease = sa.select(leases.c.attempt_id).where(leases.c.id == holder.lease_id).scalar_subquery()
        connection.execute(sa.select(attempts.c.id).where(attempts.c.id == of_lease).with_for_update())

    def _insert(self, connection: sa.Connection, lease: Row, data: bytes) -> None:
        where = {"attempt_id": lease.attempt_id, "rank": lease.rank, "start": lease.log_bytes}
        connection.execute(sa.insert(log_chunks).values(**where, size=len(data), codec=RAW, data=data))
        guard = (leases.c.id == lease.id, leases.c.log_bytes == lease.log_bytes)
        update = sa.update(leases).where(*guard).values(log_bytes=lease.log_bytes + len(data))
        if connection.execute(update).rowcount != 1:
            raise ServiceError(LEASE_LOST)

    def _mark_truncated(self, connection: sa.Connection, lease: Row, changes: Changes) -> None:
        connection.execute(sa.update(leases).where(leases.c.id == lease.id).values(log_truncated=1))
        note = Note("log.truncated", {"attempt": lease.attempt, "rank": lease.rank, "capBytes": self._cap})
        write_events(connection, lease.job_id, [note], self._clock.now())
        changes.topics |= {f"log:{lease.attempt_id}:{lease.rank}", f"job:{lease.job_id}"}


def archive(database: Database, attempt_id: str, most: int = SEGMENTS_AT_ONCE) -> bool:
    """Merge raw chunks of an ended attempt into at most ``most`` compressed segments of at most 1 MiB.

    Returns whether there may be more to do. A segment replaces its chunks in one transaction and says ``start`` and
    ``size`` as they did, so a reader finds every byte at any moment. Idempotent, and can be cut short anywhere.
    """
    return all(_archive_one(database, attempt_id) for _ in range(most))


def _archive_one(database: Database, attempt_id: str) -> bool:
    raw = (log_chunks.c.attempt_id == attempt_id, log_chunks.c.codec == RAW)
    with database.read() as connection:
        ended = sa.select(attempts.c.ended_at).where(attempts.c.id == attempt_id)
        if connection.execute(ended).scalar() is None:
            return False
        columns = (log_chunks.c.rank, log_chunks.c.start, log_chunks.c.size)
        query = sa.select(*columns).where(*raw).order_by(log_chunks.c.rank, log_chunks.c.start).limit(10_000)
        run = _first_run(connection.execute(query).all())
    if not run:
        return False
    first, last = run[0], run[-1]
    chosen = (*raw, log_chunks.c.rank == first.rank, log_chunks.c.start.between(first.start, last.start))
    with database.write() as connection:
        query = sa.select(log_chunks.c.data, log_chunks.c.size).where(*chosen).order_by(log_chunks.c.start)
        rows = connection.execute(query.with_for_update()).all()
        if len(rows) != len(run):
            return True  # another worker archives this attempt too: look again
        data = b"".join(bytes(row.data) for row in rows)
        connection.execute(sa.delete(log_chunks).where(*chosen))
        where = {"attempt_id": attempt_id, "rank": first.rank, "start": first.start}
        compressed = zlib.compress(data, 6)
        connection.execute(sa.insert(log_chunks).values(**where, size=len(data), codec=ZLIB, data=compressed))
    return True


def _first_run(rows: Sequence[Row]) -> list[Row]:
    """The first chunks of one rank that follow each other and make at most 1 MiB."""
    run: list[Row] = []
    size = 0
    for row in rows:
        follows = not run or (row.rank == run[-1].rank and row.start == run[-1].start + run[-1].size)
        if not follows or (run and size + row.size > LOG_CHUNK_BYTES):
            break
        run.append(row)
        size += row.size
    return run
