"""Placing queued jobs on waiting nodes: one transaction reserves all ranks of what can start now.

What goes where is worked out without a lock, for many look and few find something; the reservation looks at the chosen
jobs and nodes again under their locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from mingora_common import logs
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, jobs, leases, nodes
from mingora_common.db.views import job_status
from mingora_common.ids import new_id
from mingora_scheduler.domain.attempt import Note, Rank, RankState, State
from mingora_scheduler.domain.leases import CLAIM_DEADLINE, READY_DEADLINE, WAITING
from mingora_scheduler.domain.placement import Gpu, Job, Need, Node, plan
from mingora_scheduler.domain.retry import LONGEST_DELAY
from mingora_scheduler.store.attempts import detail, write_events
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.nodes import as_node
from mingora_scheduler.store.rows import Row
from mingora_scheduler.store.tokens import has_live_token

# What of a queue is looked at, and of the nodes that wait.
MAX_JOBS, MAX_NODES = 5000, 1000
TRIES = 3


def place(database: Database, account_id: str, now: int) -> Changes:
    """Place what can be placed for an account at ``now``. Idempotent; several may run at once.

    When something has come between the plan and the reservation (another placement, a cancel), the whole is done
    again. Two that race for one GPU of a machine (of different accounts, whose rows nothing locks together) are decided
    by the unique index: the one that comes second looks again.
    """
    changes = Changes()
    for left in reversed(range(TRIES)):
        with database.read() as connection:
            chosen = _plan(connection, account_id, now)
        if not chosen:
            break
        try:
            with database.write() as connection:
                reserved = _reserve_all(connection, account_id, chosen, now, changes)
        except IntegrityError:
            if not left:
                raise
        else:
            changes.placements += reserved
            if reserved == len(chosen):
                break
    return changes


def _plan(connection: sa.Connection, account_id: str, now: int) -> dict[str, list[str]]:
    waiting = _candidates(connection, account_id, now)
    queued = _queued(connection, account_id, now) if waiting else []
    return plan([as_job(row) for row in queued], list(waiting.values()), busy_gpus(connection))


def _reserve_all(
    connection: sa.Connection, account_id: str, chosen: Mapping[str, Sequence[str]], now: int, changes: Changes
) -> int:
    """Reserve what is chosen and still can be; how many jobs that is."""
    job_ids, node_ids = sorted(chosen), sorted(set().union(*chosen.values()))
    # Locks, in the one order; what they protect is read again under them (a cancel locks the job's row as well).
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id).with_for_update())
    connection.execute(sa.select(nodes.c.id).where(nodes.c.id.in_(node_ids)).order_by(nodes.c.id).with_for_update())
    waiting = _candidates(connection, account_id, now, nodes.c.id.in_(node_ids))
    queued = {row.job_id: row for row in _queued(connection, account_id, now, job_status.c.job_id.in_(job_ids))}
    wanted = {job_id: as_job(row) for job_id, row in queued.items()}
    if any(job.need.gpu for job in wanted.values()):
        _hold_gpus(connection)
    groups = plan(wanted.values(), list(waiting.values()), busy_gpus(connection))
    for job_id, group in groups.items():
        _reserve(connection, queued[job_id], wanted[job_id], [waiting[key] for key in group], now, changes)
    return len(groups)


def _hold_gpus(connection: sa.Connection) -> None:
    """PostgreSQL: GPUs go out one placement after the other. No row locks them together over accounts, and two that
    insert leases of the same two GPUs in different order would wait for each other for ever."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext("gpus"))))


def _candidates(
    connection: sa.Connection, account_id: str, now: int, *among: sa.ColumnElement[bool]
) -> dict[str, Node]:
    """The account's nodes that wait for work and could take it."""
    busy = sa.exists().where(leases.c.node_id == nodes.c.id, leases.c.ended_at.is_(None))
    query = (
        sa.select(nodes)
        .where(
            *among,
            nodes.c.account_id == account_id,
            nodes.c.claimed_at > now - WAITING,
            nodes.c.pause_reason.is_(None),
            ~busy,
            has_live_token(nodes.c.id, now),
        )
        .order_by(nodes.c.id)
        .limit(MAX_NODES)
    )
    return {row.id: as_node(row, False, now) for row in connection.execute(query)}


def _queued(connection: sa.Connection, account_id: str, now: int, *among: sa.ColumnElement[bool]) -> list[Row]:
    """The account's jobs that may start now, the first to start first."""
    status = job_status.c
    # Says nothing that the state doesn't, but lets the database pass over jobs that are done without looking closer.
    settled = sa.exists().where(
        attempts.c.job_id == status.job_id, (attempts.c.final == 1) | attempts.c.ended_at.is_(None)
    )
    query = (
        sa.select(
            status.job_id, status.account_id, status.tenant_id, status.priority, status.created_at, status.spec,
            status.attempt,
        )
        .where(
            *among,
            status.account_id == account_id,
            ~settled,
            status.state == "queued",
            # No retry is put off for longer: it was set before the clock was set back.
            status.retry_at.is_(None) | (status.retry_at <= now) | (status.retry_at > now + LONGEST_DELAY),
        )
        .order_by(status.priority.desc(), status.created_at, status.job_id)
        .limit(MAX_JOBS)
    )  # fmt: skip
    return list(connection.execute(query).all())


def lock_job(connection: sa.Connection, job_id: str) -> None:
    """Lock a job's row, which api's cancel and delete lock too."""
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())


def as_job(row: Row) -> Job:
    """A row of ``job_status`` as scheduling sees it."""
    return Job(row.job_id, row.account_id, row.priority, row.created_at, Need.of(row.spec))


def busy_gpus(connection: sa.Connection) -> frozenset[Gpu]:
    """Every GPU under a live lease, of all accounts: two workers never share one (JOB-6)."""
    query = sa.select(leases.c.machine_id, leases.c.gpu_uuid)
    rows = connection.execute(query.where(leases.c.ended_at.is_(None), leases.c.gpu_uuid.is_not(None)))
    return frozenset((row.machine_id, row.gpu_uuid) for row in rows)


def _reserve(connection: sa.Connection, row: Row, job: Job, group: list[Node], now: int, changes: Changes) -> None:
    attempt_id, number = new_id("att"), (row.attempt or 0) + 1
    ranks = [
        Rank(rank, new_id("lease"), node.id, node.name, RankState.RESERVED, now + CLAIM_DEADLINE)
        for rank, node in enumerate(group)
    ]
    ours = {"job_id": job.id, "account_id": row.account_id}
    connection.execute(
        sa.insert(attempts).values(
            id=attempt_id, **ours, tenant_id=row.tenant_id, number=number, ranks=len(ranks),
            state=State.RESERVED.value, created_at=now, ready_deadline_at=now + READY_DEADLINE,
            # What placed it: the worker takes the id over, so that one id leads through the logs of everybody.
            detail={**detail(ranks), "request": logs.request_id()},
        )
    )  # fmt: skip
    connection.execute(
        sa.insert(leases),
        [
            {
                "id": rank.lease_id, "attempt_id": attempt_id, **ours, "node_id": node.id, "attempt": number,
                "rank": rank.rank, "state": rank.state.value, "machine_id": node.machine_id,
                "gpu_uuid": node.gpu_uuid if job.need.gpu else None, "created_at": now,
                "expires_at": rank.expires_at, "log_bytes": 0, "log_truncated": 0,
            }
            for rank, node in zip(ranks, group, strict=True)
        ],
    )  # fmt: skip
    where = [{"rank": rank.rank, "nodeId": rank.node_id, "nodeName": rank.node_name} for rank in ranks]
    write_events(connection, job.id, [Note("attempt.reserved", {"attempt": number, "ranks": where})], now)
    changes.topics |= {f"job:{job.id}", *(f"node:{node.id}" for node in group)}
