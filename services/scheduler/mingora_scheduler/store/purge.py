"""Removing what is left of a job that its owner has deleted."""

from __future__ import annotations

import sqlalchemy as sa

from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, events, leases, log_chunks, work_tokens
from mingora_common.db.views import job_status

CHUNKS_AT_ONCE = 64


def purge(database: Database, job_id: str) -> bool:
    """Delete the attempts, leases, tokens, events and logs of a job that is gone; False when the job still exists.

    A job id is never used twice, so a job that is gone stays gone, and this may be cut short anywhere.
    """
    with database.read() as connection:
        if connection.execute(sa.select(job_status.c.job_id).where(job_status.c.job_id == job_id)).first() is not None:
            return False
        ids = list(connection.execute(sa.select(attempts.c.id).where(attempts.c.job_id == job_id)).scalars())
    for attempt_id in ids:
        while _delete_chunks(database, attempt_id):
            pass
    with database.write() as connection:
        held = list(connection.execute(sa.select(leases.c.id).where(leases.c.job_id == job_id)).scalars())
        for table in (attempts, leases, events):
            connection.execute(sa.delete(table).where(table.c.job_id == job_id))
        connection.execute(sa.delete(work_tokens).where(work_tokens.c.lease_id.in_(held)))
    return True


def _delete_chunks(database: Database, attempt_id: str) -> bool:
    """Up to 64 MiB of a log, so that no other writer waits long."""
    mine = log_chunks.c.attempt_id == attempt_id
    with database.write() as connection:
        query = (
            sa.select(log_chunks.c.rank, log_chunks.c.start).where(mine).order_by(log_chunks.c.rank, log_chunks.c.start)
        )
        keys = connection.execute(query.limit(CHUNKS_AT_ONCE)).all()
        if not keys:
            return False
        last = sa.tuple_(log_chunks.c.rank, log_chunks.c.start) <= sa.tuple_(*(sa.literal(key) for key in keys[-1]))
        connection.execute(sa.delete(log_chunks).where(mine, last))
    return len(keys) == CHUNKS_AT_ONCE
