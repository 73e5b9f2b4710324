"""The scheduler's composition root."""

from __future__ import annotations

from flask import Flask

from mingora_common import health
from mingora_common.auth import TokenReader
from mingora_common.blobs import Pins
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.hints import Hints
from mingora_common.http import API_PREFIX, make_app
from mingora_common.metrics import Metrics
from mingora_common.wake import Waiters, Waker, connect
from mingora_scheduler.config import Config
from mingora_scheduler.routes import explain, leases, nodes
from mingora_scheduler.store.explain import ExplainStore
from mingora_scheduler.store.figures import Figures
from mingora_scheduler.store.leases import LeaseStore
from mingora_scheduler.store.logs import LogStore
from mingora_scheduler.store.nodes import NodeStore


def create_app(
    config: Config,
    *,
    database: Database,
    clock: Clock,
    hints: Hints,
    pins: Pins,
    waker: Waker,
    waiters: Waiters,
    metrics: Metrics | None = None,
) -> Flask:
    """The Flask app. ``database`` must have been opened in the role of scheduler; ``metrics`` are the process's, where
    it serves more apps."""
    metrics = metrics or Metrics()
    app = make_app("scheduler", TokenReader(database, clock), config.frame, metrics)
    client = connect(config.redis_url)
    metrics.watch("scheduler", waiters, ("node", "lease"))
    metrics.add(Figures(database, client, clock))
    node_store = NodeStore(database, clock, config.node_token_life)
    lease_store = LeaseStore(database, clock, pins, config.node_token_life)
    log_store = LogStore(database, clock)
    app.register_blueprint(health.blueprint(health.database_checks(database), {"redis": client.ping}))
    for blueprint in (
        nodes.blueprint(node_store, clock, hints, waker),
        leases.blueprint(lease_store, log_store, hints, waker, waiters),
        explain.blueprint(ExplainStore(database, clock)),
    ):
        app.register_blueprint(blueprint, url_prefix=API_PREFIX)
    return app
