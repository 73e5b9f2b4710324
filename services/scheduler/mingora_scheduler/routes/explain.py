"""``GET /explain/:jobId``: what a job waits for."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from mingora_common.auth import READ
from mingora_common.errors import NOT_FOUND, ServiceError
from mingora_common.http import needs, principal
from mingora_common.ids import is_id
from mingora_common.openapi import describe
from mingora_scheduler.domain.explain import KNOWN
from mingora_scheduler.routes import schemas
from mingora_scheduler.store.explain import ExplainStore


def blueprint(store: ExplainStore) -> Blueprint:
    """The route over ``store``."""
    routes = Blueprint("explain", __name__)

    @routes.get("/explain/<job_id>")
    @needs(READ)
    @describe("What a job waits for.", {200: schemas.EXPLANATION})
    def explain(job_id: str) -> dict[str, Any]:
        found = store.explain(principal().account_id, job_id) if is_id("job", job_id) else None
        if found is None:
            raise ServiceError(NOT_FOUND)
        state, explanation = found
        nodes = [
            {
                "nodeId": node.id,
                "name": node.name,
                "problems": [{"code": problem.code, "message": problem.message} for problem in problems],
            }
            for node, problems in explanation.nodes
        ]
        return {
            "jobId": job_id,
            "state": state,
            "waiting": explanation.waiting,
            "summary": explanation.summary,
            "nodes": nodes,
            "known": list(KNOWN),
        }

    return routes
