"""``/nodes``: registration, the list, removal, pausing."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from mingora_common.auth import NODE, READ, USER, WORK, WRITE
from mingora_common.clock import Clock
from mingora_common.errors import NOT_FOUND, QUOTA_EXCEEDED, ServiceError
from mingora_common.hints import Hints
from mingora_common.http import json_body, needs, no_content, principal
from mingora_common.ids import is_id
from mingora_common.openapi import Answer, describe
from mingora_common.wake import Waker
from mingora_scheduler.routes import fields, records, schemas
from mingora_scheduler.store.nodes import NodeStore, as_node


def blueprint(nodes: NodeStore, clock: Clock, hints: Hints, waker: Waker) -> Blueprint:
    """The routes over ``nodes``."""
    routes = Blueprint("nodes", __name__)

    @routes.post("/nodes")
    @needs(WORK, USER, NODE)
    @describe(
        "Register a node, or bring its record up to date.",
        {201: schemas.REGISTERED, 200: Answer(schemas.REGISTERED, says="It was known.")},
        body=schemas.NODE,
        errors=(QUOTA_EXCEEDED,),
    )
    def register() -> tuple[dict[str, Any], int]:
        record = records.record(json_body(records.FIELDS))
        me = principal()
        if me.kind == NODE:
            found = nodes.update(me.account_id, me.node_id or "", me.token_id, record)
        else:
            found = nodes.register(me.account_id, me.tenant_id, record, me.limits.max_nodes)
        return {
            "id": found.id,
            "name": found.name,
            "token": found.token,
            "tokenId": found.token_id,
            "ttlSeconds": (found.expires_at - clock.now()) // 1000,
        }, 201 if found.new else 200

    @routes.get("/nodes")
    @needs(READ)
    @describe("The account's nodes.", {200: schemas.NODES})
    def listed() -> Response:
        now = clock.now()
        rows = nodes.listed(principal().account_id)
        return jsonify(
            nodes=[records.rendered(row, as_node(row, lease is not None, now), lease) for row, lease in rows]
        )

    @routes.delete("/nodes/<node_id>")
    @needs(WRITE)
    @describe("Remove a node; its tokens end.", {204: None})
    def remove(node_id: str) -> Response:
        if not is_id("node", node_id):
            raise ServiceError(NOT_FOUND)
        nodes.remove(principal().account_id, node_id).announce(waker, hints)
        return no_content()

    @routes.post("/nodes/<node_id>/pause")
    @needs(WORK, NODE)
    @describe("Take no jobs for now, or again.", {204: None}, body=schemas.PAUSE)
    def pause(node_id: str) -> Response:
        me = own_node(node_id)
        body = json_body(("paused", "reason"))
        paused, reason = fields.flag(body, "paused"), fields.optional_text(body, "reason", 500)
        nodes.pause(me, node_id, (reason or "The worker paused itself.") if paused else None)
        return no_content()

    return routes


def own_node(node_id: str) -> str:
    """The account of the caller, whose token must be this node's; anything else is as unknown as a foreign id."""
    me = principal()
    if me.node_id != node_id:
        raise ServiceError(NOT_FOUND)
    return me.account_id
