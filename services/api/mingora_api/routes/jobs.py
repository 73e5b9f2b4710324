"""``/jobs``: submit once, show, cancel, delete."""

from __future__ import annotations

from typing import Any

import structlog
from flask import Blueprint, Response, jsonify, request

from mingora_api.domain.inputs import check_inputs
from mingora_api.domain.jobs import STATES, fingerprint, is_key
from mingora_api.domain.problems import Problems
from mingora_api.domain.spec import check_spec
from mingora_api.routes import schemas
from mingora_api.routes.context import actor, context
from mingora_api.routes.rendering import render_job
from mingora_api.routes.waiting import watch
from mingora_api.store import jobs
from mingora_api.store.jobs import Existing, Submission
from mingora_common.auth import READ, WRITE
from mingora_common.blobs import ObjectRef
from mingora_common.errors import (
    INPUT_MISSING,
    INVALID_JOB,
    INVALID_REQUEST,
    JOB_NOT_FINISHED,
    KEY_CONFLICT,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    ServiceError,
)
from mingora_common.http import json_body, needs, no_content, principal, wait_seconds
from mingora_common.ids import is_id, new_id
from mingora_common.openapi import Answer, describe
from mingora_common.schemas import WAIT, record

blueprint = Blueprint("jobs", __name__)
_log = structlog.get_logger()


@blueprint.post("/jobs")
@needs(WRITE)
@describe(
    "Submit a job, once: the same key with the same content is the same job.",
    {201: schemas.JOB, 200: Answer(schemas.JOB, says="The job of an earlier submission with this key.")},
    body=schemas.SUBMISSION,
    headers={"Idempotency-Key": schemas.KEY_HEADER},
    needed=("Idempotency-Key",),
    errors=(KEY_CONFLICT, INPUT_MISSING, INVALID_JOB, QUOTA_EXCEEDED),
)
def submit() -> Response:
    """Inputs are pinned before the row is inserted, so that a job never names objects that can go."""
    submission = _submission()
    limits, now = principal().limits, context().clock.now()
    with context().database.read() as connection:
        existing = jobs.by_key(connection, submission.account_id, submission.key)
        if existing is None:
            jobs.check_room(connection, submission.account_id, limits.max_jobs)
    if existing is not None:
        return _same_or_conflict(existing, submission)
    _pin_inputs(submission)
    try:
        with context().database.write() as connection:
            winner = jobs.insert(connection, now, submission, limits.max_jobs)
    except ServiceError:  # nothing was inserted; after any other fault that isn't known, and blobstore's sweep decides
        _release(submission.job_id)
        raise
    if winner is not None:
        _release(submission.job_id)
        return _same_or_conflict(winner, submission)
    context().hints.place(submission.account_id)
    return _answer(_show(submission.job_id), 201)


@blueprint.get("/jobs/<job_id>")
@needs(READ)
@describe(
    "A job; with `wait` and `knownState` as soon as its state is another.",
    {200: Answer(schemas.JOB, headers=schemas.CROWDED)},
    query={"wait": WAIT, "knownState": schemas.STATE},
)
def show(job_id: str) -> Response:
    checked_job_id(job_id)
    known, seconds = request.args.get("knownState"), wait_seconds(request.args.get("wait"))
    if known is not None and known not in STATES:
        raise ServiceError(INVALID_REQUEST, f"knownState must be one of {', '.join(STATES)}.", field="knownState")
    return watch(
        _show(job_id),
        lambda: _show(job_id),
        ready=lambda job: known is None or job["state"] != known,
        topics=[f"job:{job_id}"],
        seconds=seconds,
        answer=_answer,
    )


@blueprint.post("/jobs/<job_id>/cancel")
@needs(WRITE)
@describe(
    "Ask for a job to be cancelled.",
    {202: schemas.JOB, 200: Answer(schemas.JOB, says="It was over already.")},
    body=record({}),
    body_needed=False,
)
def cancel(job_id: str) -> Response:
    checked_job_id(job_id)
    json_body((), empty_ok=True)
    with context().database.write() as connection:
        ending = jobs.cancel(connection, context().clock.now(), principal().account_id, job_id, actor())
    if ending:
        context().hints.cancel(job_id)
        context().waker.wake([f"job:{job_id}"])
    return _answer(_show(job_id), 202 if ending else 200)


@blueprint.delete("/jobs/<job_id>")
@needs(WRITE)
@describe("Delete a job that is over, its inputs and results.", {204: None}, errors=(JOB_NOT_FINISHED,))
def delete(job_id: str) -> Response:
    """The row goes first; should blobstore be away, its sweep finds pins without a job."""
    checked_job_id(job_id)
    with context().database.write() as connection:
        attempt_id = jobs.delete(connection, context().clock.now(), principal().account_id, job_id, actor())
    _release(job_id)
    if attempt_id is not None:
        _release(attempt_id)
    context().hints.purge(job_id)
    context().waker.wake([f"job:{job_id}"])
    return no_content()


def checked_job_id(job_id: str) -> None:
    """Raise ``not_found`` for what can't be a job's id."""
    if not is_id("job", job_id):
        raise ServiceError(NOT_FOUND)


def _submission() -> Submission:
    key = request.headers.get("Idempotency-Key", "")
    if not is_key(key):
        raise ServiceError(
            INVALID_REQUEST, "Idempotency-Key must be 1 to 200 printable ASCII characters.", field="Idempotency-Key"
        )
    body = json_body(("spec", "inputs"))
    spec, inputs = body.get("spec"), body.get("inputs")
    if not isinstance(spec, dict):
        raise ServiceError(INVALID_REQUEST, "spec must be an object.", field="spec")
    if not isinstance(inputs, list):
        raise ServiceError(INVALID_REQUEST, "inputs must be a list.", field="inputs")
    problems = Problems()
    check_spec(spec, problems)
    check_inputs(inputs, problems)
    problems.check()
    caller = principal()
    return Submission(
        job_id=new_id("job"),
        account_id=caller.account_id,
        tenant_id=caller.tenant_id,
        key=key,
        fingerprint=fingerprint(spec, inputs),
        spec=spec,
        inputs=inputs,
    )


def _same_or_conflict(existing: Existing, submission: Submission) -> Response:
    if existing.fingerprint != submission.fingerprint:
        raise ServiceError(KEY_CONFLICT, jobId=existing.job_id)
    return _answer(_show(existing.job_id))


def _pin_inputs(submission: Submission) -> None:
    refs = {ObjectRef(entry["objectId"], entry["sha256"], entry["size"]): None for entry in submission.inputs}
    if refs:
        context().pins.pin(submission.job_id, submission.account_id, list(refs))


def _release(owner: str) -> None:
    try:
        context().pins.release(owner)
    except ServiceError:
        _log.warning("release_left_to_sweep", owner=owner)


def _show(job_id: str) -> dict[str, Any]:
    with context().database.read() as connection:
        return render_job(connection, jobs.get(connection, principal().account_id, job_id))


def _answer(job: dict[str, Any], status: int = 200) -> Response:
    response = jsonify(job)
    response.status_code = status
    return response
