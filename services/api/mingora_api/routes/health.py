"""``/healthz`` (the process answers) and ``/readyz`` (it can do its work)."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from mingora_api.routes.context import context

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def healthz() -> Response:
    return Response("ok", mimetype="text/plain")


@blueprint.get("/readyz")
def readyz() -> Response:
    """The database is needed (503 without it); without Redis all works, only later."""
    context().database.ping()
    return jsonify(database="ok", redis="ok" if context().sign_ins.shared() else "away")
