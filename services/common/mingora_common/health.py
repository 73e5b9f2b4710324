"""What an operator's machinery asks each service: does it live, can it work, and what has it measured.

``/healthz`` answers as long as the process does. ``/readyz`` names each dependency and how it is, with nothing of where
it is or why it fails (the log has that). ``/metrics`` is there for who shows ``MINGORA_METRICS_KEY``, and for nobody
when there is no such key.
"""

from __future__ import annotations

import functools
import hmac
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa
import structlog
from alembic.script import ScriptDirectory
from flask import Blueprint, Response, jsonify, request

from mingora_common.db import migrations
from mingora_common.db.engine import Database
from mingora_common.errors import NOT_FOUND, ServiceError
from mingora_common.metrics import CONTENT_TYPE, Metrics
from mingora_common.openapi import METRICS_KEY, PLAIN, Answer, describe
from mingora_common.schemas import TEXT, one_of, record

OK, FAILED, UNAVAILABLE = "ok", "failed", "unavailable"

_RESULT = one_of(OK, FAILED)
_READY = record({"status": one_of(OK, UNAVAILABLE), "checks": {"type": "object", "additionalProperties": _RESULT}})

Check = Callable[[], object]
"""Returns when a dependency does its part, raises when it doesn't."""

_log = structlog.get_logger()


class SchemaDiffers(Exception):
    """The database isn't at this code's schema; ``mingora-admin migrate`` or newer software mends it."""


def blueprint(needed: Mapping[str, Check], useful: Mapping[str, Check] | None = None) -> Blueprint:
    """The probes. Without one of ``needed`` the service isn't ready (503); without one of ``useful`` it works slower.

    A replica that is taken out of service for want of something that all replicas lack would make an outage of it:
    that is why Redis, without which everything works but later, is never ``needed``.
    """
    routes = Blueprint("health", __name__)
    useful = useful or {}

    @routes.get("/healthz")
    @describe("Whether the process lives.", {200: Answer(TEXT, PLAIN)})
    def healthz() -> Response:
        return Response("ok", mimetype="text/plain")

    @routes.get("/readyz")
    @describe("Whether the service can work, with each dependency by name.", {200: _READY, 503: _READY})
    def readyz() -> Response:
        found = {name: _result(name, check) for name, check in {**needed, **useful}.items()}
        ready = all(found[name] == OK for name in needed)
        response = jsonify(status=OK if ready else UNAVAILABLE, checks=found)
        response.status_code = 200 if ready else 503
        return response

    return routes


def metrics_blueprint(metrics: Metrics, key: str | None) -> Blueprint:
    """``/metrics``, for who knows ``key``; 404 for everybody else."""
    routes = Blueprint("metrics", __name__)

    @routes.get("/metrics")
    @describe("Figures in Prometheus's text format.", {200: Answer(TEXT, PLAIN)}, key=METRICS_KEY)
    def show_metrics() -> Response:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = key is not None and hmac.compare_digest(given.strip().encode(), key.encode())
        if scheme.lower() != "bearer" or not known:
            raise ServiceError(NOT_FOUND)
        return Response(metrics.text(), content_type=CONTENT_TYPE)

    return routes


def database_checks(database: Database) -> dict[str, Check]:
    """That the database answers, and that it has exactly this code's schema."""

    def schema() -> None:
        with database.read() as connection:
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if found != schema_head():
            raise SchemaDiffers

    return {"database": lambda: database.ping(), "schema": schema}


@functools.cache
def schema_head() -> str | None:
    """The newest migration that this code knows."""
    return ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()


def _result(name: str, check: Check) -> str:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the dependency doesn't do its part
        _log.warning("not_ready", check=name, error=error.__class__.__name__)
        return FAILED
    return OK
