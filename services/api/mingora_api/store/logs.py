"""Log bytes as scheduler stored them, read through ``job_log`` and ``job_log_chunk``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from mingora_api.domain.logslice import Chunk
from mingora_common.db.views import job_log, job_log_chunk

# Many small chunks are read over several answers: an answer may hold fewer bytes than asked for.
MAX_CHUNKS = 4096
_FETCHED_AT_ONCE = 8

_C = job_log_chunk.c


def find(connection: sa.Connection, job_id: str, attempt: int, rank: int) -> sa.Row[Any] | None:
    """One rank's log: attempt_id, size, truncated, ended."""
    query = sa.select(job_log).where(job_log.c.job_id == job_id, job_log.c.attempt == attempt, job_log.c.rank == rank)
    return connection.execute(query).first()


def chunks(connection: sa.Connection, attempt_id: str, rank: int, offset: int, end: int) -> Iterator[Chunk]:
    """The chunks that hold the bytes from ``offset`` to ``end``, in order, a few at a time."""
    log = (_C.attempt_id == attempt_id, _C.rank == rank)
    first = sa.select(sa.func.max(_C.start)).where(*log, _C.start <= offset).scalar_subquery()
    query = (
        sa.select(_C.start, _C.size, _C.codec, _C.data)
        .where(*log, _C.start >= first, _C.start < end)
        .order_by(_C.start)
        .limit(MAX_CHUNKS)
        .execution_options(yield_per=_FETCHED_AT_ONCE)
    )
    for row in connection.execute(query):
        yield Chunk(row.start, row.size, row.codec, bytes(row.data))
