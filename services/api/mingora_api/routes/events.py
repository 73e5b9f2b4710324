"""``GET /jobs/:id/events``: what happened to a job, in order."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from mingora_api.domain.jobs import MAX_NUMBER, TERMINAL
from mingora_api.routes import schemas
from mingora_api.routes.context import context
from mingora_api.routes.jobs import checked_job_id
from mingora_api.routes.waiting import watch
from mingora_api.store import jobs
from mingora_common.auth import READ
from mingora_common.clock import rfc3339
from mingora_common.http import needs, principal, query_int, wait_seconds
from mingora_common.openapi import Answer, describe
from mingora_common.schemas import WAIT, number

MAX_PAGE = 1000

blueprint = Blueprint("events", __name__)


@blueprint.get("/jobs/<job_id>/events")
@needs(READ)
@describe(
    "What happened to a job, in order; a waiting read.",
    {200: Answer(schemas.EVENTS, headers=schemas.CROWDED)},
    query={"after": number(0, MAX_NUMBER), "limit": number(1, MAX_PAGE), "wait": WAIT},
)
def show_events(job_id: str) -> Response:
    checked_job_id(job_id)
    after = query_int("after", 0, maximum=MAX_NUMBER)
    limit = query_int("limit", 500, minimum=1, maximum=MAX_PAGE)
    return watch(
        _look(job_id, after, limit),
        lambda: _look(job_id, after, limit),
        ready=lambda page: bool(page["events"]) or page["final"],
        topics=[f"job:{job_id}"],
        seconds=wait_seconds(request.args.get("wait")),
        answer=jsonify,
    )


def _look(job_id: str, after: int, limit: int) -> dict[str, Any]:
    """The job's state is read before its events: what ended it is then among them."""
    with context().database.read() as connection:
        job = jobs.get_summary(connection, principal().account_id, job_id)
        rows = jobs.events(connection, job_id, after, limit + 1)
        cancelled = jobs.cancel_event(connection, job)
    found = [_event(row.seq, row.at, row.type, row.data) for row in rows]
    if after < 1:  # scheduler numbers its events from 2: the first is the job's own row
        found.insert(0, _event(1, job.created_at, "job.submitted", {"key": job.idempotency_key}))
    if cancelled is not None and after < cancelled:
        found.append(_event(cancelled, job.cancel_requested_at, jobs.CANCEL_REQUESTED, {}))
    shown = found[:limit]
    return {
        "events": shown,
        "last": shown[-1]["seq"] if shown else after,
        "final": job.state in TERMINAL and len(found) <= limit,
    }


def _event(seq: int, at: int, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"seq": seq, "at": rfc3339(at), "type": kind, "data": data}
