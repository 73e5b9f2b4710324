"""``GET /jobs/:id/logs``: a job's output, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flask import Blueprint, Response, request

from mingora_api.domain.jobs import MAX_NUMBER, TERMINAL
from mingora_api.domain.logslice import cut
from mingora_api.routes import schemas
from mingora_api.routes.context import context
from mingora_api.routes.jobs import checked_job_id
from mingora_api.routes.waiting import watch
from mingora_api.store import jobs, logs
from mingora_common.auth import READ
from mingora_common.errors import INVALID_REQUEST, NOT_FOUND, ServiceError
from mingora_common.http import needs, principal, query_int, wait_seconds
from mingora_common.openapi import describe
from mingora_common.schemas import COUNT, WAIT, number

MAX_BYTES = 4 * 1024 * 1024

blueprint = Blueprint("logs", __name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    job_id: str
    attempt: int | None
    rank: int
    offset: int
    tail: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class _Found:
    """A stretch of one rank's log; ``attempt`` is 0 before the first."""

    attempt: int
    attempt_id: str | None
    offset: int
    data: bytes
    size: int
    ended: bool
    truncated: bool

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)

    @property
    def complete(self) -> bool:
        return self.ended and self.next_offset >= self.size


@blueprint.get("/jobs/<job_id>/logs")
@needs(READ)
@describe(
    "A rank's output, byte for byte; a waiting read. `tail` and `offset` exclude each other.",
    {200: schemas.LOG},
    query={
        "attempt": number(1, MAX_NUMBER),
        "rank": number(0, MAX_NUMBER),
        "offset": COUNT,
        "tail": COUNT,
        "limit": number(1, MAX_BYTES),
        "wait": WAIT,
    },
)
def show_log(job_id: str) -> Response:
    checked_job_id(job_id)
    wanted = _Wanted(
        job_id=job_id,
        attempt=query_int("attempt", 0, minimum=1, maximum=MAX_NUMBER) if "attempt" in request.args else None,
        rank=query_int("rank", 0, maximum=MAX_NUMBER),
        offset=query_int("offset", 0),
        tail=query_int("tail", 0) if "tail" in request.args else None,
        limit=query_int("limit", 1024 * 1024, minimum=1, maximum=MAX_BYTES),
    )
    if wanted.tail is not None and "offset" in request.args:
        raise ServiceError(INVALID_REQUEST, "tail and offset exclude each other.", field="tail")
    seconds = wait_seconds(request.args.get("wait"))
    first = _look(wanted)
    following = replace(wanted, offset=first.offset, tail=None)  # a tail is measured once, then followed
    topics = [f"job:{job_id}", *([f"log:{first.attempt_id}:{wanted.rank}"] if first.attempt_id else [])]
    return watch(
        first,
        lambda: _look(following),
        ready=lambda log: bool(log.data) or log.complete or log.attempt != first.attempt,
        topics=topics,
        seconds=seconds,
        answer=_answer,
    )


def _look(wanted: _Wanted) -> _Found:
    with context().database.read() as connection:
        job = jobs.get_summary(connection, principal().account_id, wanted.job_id)
        attempt = wanted.attempt or job.attempt
        if attempt is None:
            return _Found(0, None, 0, b"", 0, ended=job.state in TERMINAL, truncated=False)
        log = logs.find(connection, wanted.job_id, attempt, wanted.rank)
        if log is None:
            raise ServiceError(NOT_FOUND)
        offset = wanted.offset if wanted.tail is None else max(0, log.size - wanted.tail)
        end = min(log.size, offset + wanted.limit)
        data = b""
        if offset < end:
            data = cut(logs.chunks(connection, log.attempt_id, wanted.rank, offset, end), offset, end)
    return _Found(attempt, log.attempt_id, offset, data, log.size, bool(log.ended), bool(log.truncated))


def _answer(log: _Found) -> Response:
    response = Response(log.data, mimetype="application/octet-stream")
    response.headers["X-Log-Attempt"] = str(log.attempt)
    response.headers["X-Log-Offset"] = str(log.offset)
    response.headers["X-Log-Next-Offset"] = str(log.next_offset)
    response.headers["X-Log-Size"] = str(log.size)
    response.headers["X-Log-Complete"] = _flag(log.complete)
    response.headers["X-Log-Truncated"] = _flag(log.truncated)
    return response


def _flag(value: bool) -> str:
    return "true" if value else "false"
