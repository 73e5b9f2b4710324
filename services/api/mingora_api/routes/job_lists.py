"""``GET /jobs``: the account's jobs, newest first, page by page."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from mingora_api.domain.jobs import STATES, is_key
from mingora_api.routes import schemas
from mingora_api.routes.context import context
from mingora_api.routes.cursors import read_cursor, write_cursor
from mingora_api.routes.rendering import render_summaries
from mingora_api.store import jobs
from mingora_api.store.jobs import Position
from mingora_common.auth import READ
from mingora_common.errors import INVALID_REQUEST, ServiceError
from mingora_common.http import needs, principal, query_int
from mingora_common.openapi import describe
from mingora_common.schemas import number

MAX_PAGE = 200

blueprint = Blueprint("job_lists", __name__)


@blueprint.get("/jobs")
@needs(READ)
@describe(
    "The account's jobs, newest first.",
    {200: schemas.JOBS},
    query={"limit": number(1, MAX_PAGE), "before": schemas.CURSOR, "state": schemas.STATE, "key": schemas.KEY},
)
def list_jobs() -> Response:
    limit = query_int("limit", 50, minimum=1, maximum=MAX_PAGE)
    before, state, key = (request.args.get(name) for name in ("before", "state", "key"))
    if state is not None and state not in STATES:
        raise ServiceError(INVALID_REQUEST, f"state must be one of {', '.join(STATES)}.", field="state")
    if key is not None and not is_key(key):
        raise ServiceError(INVALID_REQUEST, "key must be 1 to 200 printable ASCII characters.", field="key")
    position = None if before is None else read_cursor(before)
    with context().database.read() as connection:
        account_id = principal().account_id
        rows = jobs.page(connection, account_id, limit + 1, before=position, state=state, key=key)
        shown = render_summaries(connection, rows[:limit])
    more = len(rows) > limit
    last = rows[limit - 1] if more else None
    return jsonify(jobs=shown, next=write_cursor(Position(last.created_at, last.job_id)) if last else None)
