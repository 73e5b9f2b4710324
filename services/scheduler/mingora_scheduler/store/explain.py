"""Reads what an explanation needs: a job's status, the account's nodes, and the GPUs in use."""

from __future__ import annotations

import sqlalchemy as sa

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import nodes
from mingora_common.db.views import job_status
from mingora_scheduler.domain import explain
from mingora_scheduler.domain.explain import Explanation
from mingora_scheduler.store.nodes import MAX_LISTED, as_node, live_leases
from mingora_scheduler.store.placement import as_job, busy_gpus


class ExplainStore:
    """Explains jobs."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def explain(self, account_id: str, job_id: str) -> tuple[str, Explanation] | None:
        """A job's state and what it waits for; None when the account has no such job."""
        now = self._clock.now()
        with self._database.read() as connection:
            query = sa.select(job_status).where(job_status.c.job_id == job_id, job_status.c.account_id == account_id)
            job = connection.execute(query).first()
            if job is None:
                return None
            if job.state != "queued":
                return job.state, explain.of_state(job.state)
            held = live_leases(connection, account_id)
            query = sa.select(nodes).where(nodes.c.account_id == account_id).order_by(nodes.c.name, nodes.c.id)
            found = [as_node(row, row.id in held, now) for row in connection.execute(query.limit(MAX_LISTED))]
            busy = busy_gpus(connection)
        retry_in = max(0, -(-((job.retry_at or 0) - now) // 1000))
        return job.state, explain.of_queued(as_job(job), found, busy, retry_in)
