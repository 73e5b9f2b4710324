"""``/nodes/:id/…``: what a node does to get a lease and under it: claim, ready, heartbeat, logs, report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from flask import Blueprint, Response, jsonify, request

from mingora_common.auth import LEASE, NODE, WORK
from mingora_common.errors import (
    INPUT_MISSING,
    INVALID_REQUEST,
    INVALID_TOKEN,
    LEASE_LOST,
    LOG_GAP,
    LOG_INCOMPLETE,
    NODE_BUSY,
    ServiceError,
)
from mingora_common.hints import Hints
from mingora_common.http import (
    content_length,
    json_body,
    needs,
    no_content,
    principal,
    query_int,
    wait_as_caller,
    wait_seconds,
)
from mingora_common.ids import is_id
from mingora_common.openapi import OCTETS, describe
from mingora_common.schemas import BYTES, COUNT, identifier, number
from mingora_common.wake import Full, Waiters, Waker
from mingora_scheduler.domain.inputs import inputs_digest
from mingora_scheduler.domain.leases import (
    LEASE_TTL,
    LOG_CAP_BYTES,
    LOG_CHUNK_BYTES,
    READY_DEADLINE,
    STOP_GRACE_SECONDS,
)
from mingora_scheduler.routes import fields, reports, schemas
from mingora_scheduler.routes.nodes import own_node
from mingora_scheduler.routes.schemas import MAX_ATTEMPT
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.leases import Grant, Holder, LeaseStore, Orders, Terms, Usage
from mingora_scheduler.store.logs import LogStore

TTL_SECONDS = LEASE_TTL // 1000
CLAIM_ID = r"[A-Za-z0-9_-]{16,64}"
F = TypeVar("F", bound=Callable[..., Any])


def blueprint(leases: LeaseStore, logs: LogStore, hints: Hints, waker: Waker, waiters: Waiters) -> Blueprint:
    """The routes over ``leases`` and ``logs``."""
    routes = Blueprint("leases", __name__)

    @routes.post("/nodes/<node_id>/claim")
    @needs(WORK, NODE)
    @describe(
        "Ask for work; a waiting read.",
        {200: schemas.GRANT, 204: schemas.NOTHING},
        body=schemas.CLAIM,
        errors=(NODE_BUSY,),
    )
    def claim(node_id: str) -> Response:
        account_id = own_node(node_id)
        body = json_body(("claimId", "wait"))
        claim_id = fields.text(body, "claimId", 64, shortest=16, pattern=CLAIM_ID)
        wait = wait_seconds(body.get("wait"))
        opened = leases.open_claim(account_id, node_id, principal().token_id, claim_id)
        hints.place(account_id)

        def look() -> Grant | None:
            changes = Changes()
            grant = leases.take(opened, changes)
            changes.announce(waker, hints)
            return grant

        try:
            grant = wait_as_caller(look, waiters, [f"node:{node_id}"], wait)
        except Full:
            return _later(no_content())
        return no_content() if grant is None else jsonify(_granted(grant))

    @routes.post("/nodes/<node_id>/ready")
    @needs(WORK, LEASE)
    @describe("The inputs are there and verified.", {200: schemas.ORDERS}, body=schemas.READY, errors=(LEASE_LOST,))
    def ready(node_id: str) -> Response:
        body = json_body(("leaseId", "attempt", "inputsDigest", "wait", "isolation", "warnings"))
        holder = _holder(node_id, body.get("leaseId"), fields.number(body, "attempt", 1, MAX_ATTEMPT))
        digest, wait = fields.text(body, "inputsDigest", 64, pattern=fields.SHA256), wait_seconds(body.get("wait"))
        terms = Terms(fields.profile(body, "isolation"), reports.warnings(body))
        changes = Changes()
        orders = leases.ready(holder, digest, terms, changes)
        changes.announce(waker, hints)
        return answered(holder, orders, wait)

    @routes.post("/nodes/<node_id>/heartbeat")
    @needs(WORK, LEASE)
    @describe(
        "Keep the lease; a waiting read of what to do.",
        {200: schemas.ORDERS},
        body=schemas.HEARTBEAT,
        errors=(LEASE_LOST,),
    )
    def heartbeat(node_id: str) -> Response:
        body = json_body(("leaseId", "attempt", "usage", "wait", "started"))
        holder = _holder(node_id, body.get("leaseId"), fields.number(body, "attempt", 1, MAX_ATTEMPT))
        wait, started = wait_seconds(body.get("wait")), fields.flag(body, "started", default=False)
        measured = fields.measures(body, "usage", reports.USAGE)
        changes = Changes()
        orders = leases.beat(holder, Usage(measured) if measured else None, started, changes)
        changes.announce(waker, hints)
        return answered(holder, orders, wait)

    @routes.put("/nodes/<node_id>/logs")
    @needs(WORK, LEASE)
    @describe(
        "Append to the rank's log.",
        {200: schemas.ACKED},
        body=BYTES,
        body_media=OCTETS,
        query={
            "leaseId": identifier("lease"),
            "attempt": number(1, MAX_ATTEMPT),
            "offset": COUNT,
            "truncated": number(0, 1),
        },
        needed=("leaseId", "attempt"),
        errors=(LEASE_LOST, LOG_GAP),
    )
    def append(node_id: str) -> dict[str, int]:
        holder = _holder(node_id, request.args.get("leaseId"), query_int("attempt", 0, maximum=MAX_ATTEMPT))
        offset = query_int("offset", 0)
        truncated = query_int("truncated", 0, maximum=1) == 1
        length = content_length(LOG_CHUNK_BYTES)
        data = request.stream.read(length)
        if len(data) < length:
            raise ServiceError(INVALID_REQUEST, "The body ended before its Content-Length.")
        changes = Changes()
        acked = logs.append(holder, offset, data, truncated, changes)
        changes.announce(waker, hints)
        return {"acked": acked}

    @routes.post("/nodes/<node_id>/report")
    @_replayable(leases)
    @needs(WORK, LEASE)
    @describe(
        "How the rank ended.",
        {200: schemas.REPORTED},
        body=schemas.REPORT,
        errors=(LEASE_LOST, LOG_INCOMPLETE, INPUT_MISSING),
    )
    def report(node_id: str) -> dict[str, str]:
        body = json_body(reports.FIELDS)
        holder = _holder(node_id, body.get("leaseId"), fields.number(body, "attempt", 1, MAX_ATTEMPT))
        parsed, log_bytes = reports.report(body)
        changes = Changes()
        state = leases.report(holder, parsed, log_bytes, reports.digest(body), changes)
        changes.announce(waker, hints)
        return {"state": state}

    def answered(holder: Holder, orders: Orders, wait: float) -> Response:
        """The answer to ready and heartbeat, once there is news or after the wait."""
        crowded = False

        def look() -> Orders | None:
            now = leases.orders(holder)
            return now if now.news else None

        if not orders.news and wait > 0:
            try:
                topics = [f"lease:{holder.lease_id}"]
                orders = wait_as_caller(look, waiters, topics, wait) or leases.orders(holder)
            except Full:
                crowded = True
        stop = None if orders.stop is None else {"reason": orders.stop, "graceSeconds": STOP_GRACE_SECONDS}
        response = jsonify(ttlSeconds=TTL_SECONDS, start=orders.start, stop=stop)
        return _later(response) if crowded else response

    return routes


def _replayable(leases: LeaseStore) -> Callable[[F], F]:
    """A lease's token dies with the lease, and the lease ends with the report: the same report again is answered all
    the same, under the token that made it."""

    def decorate(view: F) -> F:
        @functools.wraps(view)
        def answer(node_id: str) -> Any:
            try:
                return view(node_id)
            except ServiceError as error:
                if error.kind is not INVALID_TOKEN:
                    raise
                known = leases.reported_under(request.headers.get("Authorization", "").partition(" ")[2].strip())
                if known is None:
                    raise
                body = json_body(reports.FIELDS)
                named = (node_id, body.get("leaseId"), body.get("attempt"), reports.digest(body))
                if named != (known.node_id, known.id, known.attempt, known.report_digest):
                    raise ServiceError(LEASE_LOST) from None
                return {"state": known.attempt_state}

        return cast(F, answer)

    return decorate


def _holder(node_id: str, lease_id: object, attempt: int) -> Holder:
    """Who speaks: path, body and token must name one and the same lease."""
    me = principal()
    if not is_id("lease", lease_id) or me.lease_id != lease_id or me.node_id != node_id:
        raise ServiceError(LEASE_LOST)
    return Holder(me.account_id, node_id, str(lease_id), attempt, me.token_id)


def _granted(grant: Grant) -> dict[str, Any]:
    return {
        "leaseId": grant.lease.id,
        "attempt": grant.lease.attempt,
        "attemptId": grant.lease.attempt_id,
        "jobId": grant.lease.job_id,
        "rank": grant.lease.rank,
        "ranks": grant.ranks,
        "token": grant.token,
        "ttlSeconds": TTL_SECONDS,
        "readyWithinSeconds": READY_DEADLINE // 1000,
        "logCapBytes": LOG_CAP_BYTES,
        "spec": grant.spec,
        "inputs": grant.inputs,
        "inputsDigest": inputs_digest(grant.inputs),
        "requestId": grant.request,
    }


def _later(response: Response) -> Response:
    response.headers["Retry-After"] = "1"
    return response
