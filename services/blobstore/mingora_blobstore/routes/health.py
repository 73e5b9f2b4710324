"""``/healthz`` (the process answers) and ``/readyz`` (database and content answer too)."""

from __future__ import annotations

from flask import Blueprint, Response

from mingora_blobstore.store.content import ContentStore
from mingora_common.db.engine import Database


def blueprint(database: Database, content: ContentStore) -> Blueprint:
    """The routes that an operator's probes ask."""
    routes = Blueprint("health", __name__)

    @routes.get("/healthz")
    def healthz() -> Response:
        return Response("ok", mimetype="text/plain")

    @routes.get("/readyz")
    def readyz() -> Response:
        database.ping()
        content.ping()
        return Response("ok", mimetype="text/plain")

    return routes
