"""The composition root of the api service."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from flask import Flask, Response, g
from sqlalchemy.exc import SQLAlchemyError

from mingora_api.config import Config
from mingora_api.domain.passwords import Passwords
from mingora_api.routes import events, job_lists, jobs, logs, policy, tokens
from mingora_api.routes.context import Context
from mingora_api.store import tokens as token_store
from mingora_api.store.signins import SignIns
from mingora_common import health
from mingora_common.auth import USER, TokenReader
from mingora_common.blobs import Pins
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.hints import Hints
from mingora_common.http import API_PREFIX, make_app
from mingora_common.metrics import Metrics
from mingora_common.wake import Waiters, Waker, connect

_log = structlog.get_logger()


def create_app(
    config: Config,
    *,
    database: Database,
    clock: Clock,
    hints: Hints,
    pins: Pins,
    waker: Waker,
    waiters: Waiters,
    passwords: Passwords,
    metrics: Metrics | None = None,
) -> Flask:
    """The WSGI app; ``database`` is opened with the role ``api``. ``metrics`` are the process's, of which this is one
    app of several."""
    metrics = metrics or Metrics()
    app = make_app("api", TokenReader(database, clock), config.frame, metrics)
    client = connect(config.redis_url)
    sign_ins = SignIns(client)
    app.extensions["mingora_api"] = Context(database, clock, hints, pins, waker, waiters, passwords, sign_ins)
    app.after_request(_note_token_use(database, clock))
    metrics.watch("api", waiters, ("job",))
    app.register_blueprint(health.blueprint(health.database_checks(database), {"redis": client.ping}))
    for module in (tokens, policy, jobs, job_lists, events, logs):
        app.register_blueprint(module.blueprint, url_prefix=API_PREFIX)
    return app


def _note_token_use(database: Database, clock: Clock) -> Callable[[Response], Response]:
    """After a request, write down when its user token was last used."""

    def note(response: Response) -> Response:
        caller, now = g.get("principal"), clock.now()
        if caller is None or caller.kind != USER:
            return response
        if caller.last_used_at is not None and now - caller.last_used_at < token_store.USE_NOTED_EVERY:
            return response
        try:
            with database.write() as connection:
                token_store.note_use(connection, now, caller.token_id)
        except SQLAlchemyError as error:
            _log.warning("token_use_not_noted", error=error.__class__.__name__)
        return response

    return note
