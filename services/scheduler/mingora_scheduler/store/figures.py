"""What Prometheus is told of scheduling: the queue from SQL, and what tasks and services have counted in Redis.

Every replica tells the same, for both are shared; a sum over replicas would count twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis
import sqlalchemy as sa
import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from mingora_common import tally
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, nodes
from mingora_common.db.views import job_status
from mingora_scheduler.domain.attempt import State
from mingora_scheduler.domain.leases import WAITING

LIVE = (State.RESERVED, State.RUNNING, State.STOPPING)
TASK, SWEPT, DONE, ENDED_BADLY = "task", "swept", "done", "failed"
PLACEMENTS, LEASES_LOST = "placements", "leases_lost"

_log = structlog.get_logger()


class Figures(Collector):
    """Asks when Prometheus asks; what can't be reached is left out."""

    def __init__(self, database: Database, client: redis.Redis, clock: Clock) -> None:
        self._database = database
        self._client = client
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        try:
            yield from self._queue()
        except SQLAlchemyError as error:
            _log.warning("figures_unknown", of="database", error=error.__class__.__name__)
        try:
            yield from self._counts(tally.read(self._client))
        except redis.RedisError as error:
            _log.warning("figures_unknown", of="redis", error=error.__class__.__name__)

    def _queue(self) -> Iterator[Metric]:
        now, status = self._clock.now(), job_status.c
        since = sa.func.coalesce(status.retry_at, status.created_at)
        settled = sa.exists().where(
            attempts.c.job_id == status.job_id, (attempts.c.final == 1) | attempts.c.ended_at.is_(None)
        )
        queued = sa.select(sa.func.count(), sa.func.min(since)).where(~settled, status.state == "queued")
        live = sa.select(attempts.c.state, sa.func.count()).where(attempts.c.ended_at.is_(None))
        heard = sa.select(sa.func.count()).where(nodes.c.claimed_at > now - WAITING, nodes.c.pause_reason.is_(None))
        with self._database.read() as connection:
            number, oldest = connection.execute(queued).one()
            by_state = {row[0]: row[1] for row in connection.execute(live.group_by(attempts.c.state))}
            waiting = connection.execute(heard).scalar_one()
        jobs = GaugeMetricFamily("mingora_jobs", "Jobs that aren't over, by state.", labels=("state",))
        jobs.add_metric(("queued",), number)
        for state in LIVE:
            jobs.add_metric((state.value,), by_state.get(state.value, 0))
        yield jobs
        age = 0.0 if oldest is None else max(0, now - oldest) / 1000
        yield GaugeMetricFamily("mingora_queue_age_seconds", "How long the oldest queued job has waited.", age)
        yield GaugeMetricFamily("mingora_nodes_waiting", "Nodes that wait for work.", waiting)

    def _counts(self, counts: dict[str, int]) -> Iterator[Metric]:
        yield CounterMetricFamily("mingora_placements", "Jobs given to nodes.", counts.get(PLACEMENTS, 0))
        yield CounterMetricFamily("mingora_leases_lost", "Leases whose node went away.", counts.get(LEASES_LOST, 0))
        tasks = CounterMetricFamily("mingora_tasks", "Tasks by how they ended.", labels=("task", "outcome"))
        sweeps = GaugeMetricFamily("mingora_sweep_age_seconds", "Since a sweep was last done.", labels=("sweep",))
        for name, value in sorted(counts.items()):
            kind, _, rest = name.partition(":")
            task, _, outcome = rest.partition(":")
            if kind == TASK:
                tasks.add_metric((task, outcome), value)
            elif kind == SWEPT:
                sweeps.add_metric((task,), max(0, self._clock.now() - value) / 1000)
        yield from (tasks, sweeps)
