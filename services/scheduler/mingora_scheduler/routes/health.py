"""``/healthz`` and ``/readyz``."""

from __future__ import annotations

from flask import Blueprint

from mingora_common.db.engine import Database


def blueprint(database: Database) -> Blueprint:
    """Alive, and able to work: what scheduling needs is the database (Redis only makes it quick)."""
    routes = Blueprint("health", __name__)

    @routes.get("/healthz")
    def alive() -> str:
        return "ok"

    @routes.get("/readyz")
    def ready() -> str:
        database.ping()
        return "ok"

    return routes
