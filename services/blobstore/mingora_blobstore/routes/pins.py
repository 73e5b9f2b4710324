"""``/internal/pins``: what api and scheduler ask for, with the shared key. Never routed from outside."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from mingora_blobstore.domain.objects import is_sha256
from mingora_blobstore.routes import schemas
from mingora_blobstore.store.pins import StoredPins
from mingora_common.blobs import ObjectRef
from mingora_common.errors import INPUT_MISSING, INVALID_REQUEST, NOT_FOUND, ServiceError
from mingora_common.http import check_internal_key, json_body, no_content
from mingora_common.ids import is_id
from mingora_common.openapi import INTERNAL_KEY, describe


def blueprint(pins: StoredPins, internal_key: str) -> Blueprint:
    """The routes over the pins."""
    routes = Blueprint("pins", __name__)

    @routes.before_request
    def guard() -> None:
        check_internal_key(internal_key)

    @routes.post("/internal/pins")
    @describe(
        "Hold objects for a job or an attempt, all or none.",
        {200: schemas.PINNED},
        body=schemas.PINS,
        errors=(INPUT_MISSING,),
        key=INTERNAL_KEY,
    )
    def pin() -> Response:
        body = json_body(("owner", "accountId", "objects"))
        owner, account_id, items = body.get("owner"), body.get("accountId"), body.get("objects")
        if not _is_owner(owner):
            raise ServiceError(INVALID_REQUEST, "owner must be a job's or an attempt's id.", field="owner")
        if not is_id("acc", account_id):
            raise ServiceError(INVALID_REQUEST, "accountId must be an account's id.", field="accountId")
        if not isinstance(items, list):
            raise ServiceError(INVALID_REQUEST, "objects must be a list.", field="objects")
        return jsonify(pinned=pins.pin(str(owner), str(account_id), [_ref(item) for item in items]))

    @routes.delete("/internal/pins/<owner>")
    @describe("Let go of all that an owner holds.", {204: None}, path={"owner": schemas.OWNER}, key=INTERNAL_KEY)
    def release(owner: str) -> Response:
        if not _is_owner(owner):
            raise ServiceError(NOT_FOUND)
        pins.release(owner)
        return no_content()

    return routes


def _is_owner(value: object) -> bool:
    return is_id("job", value) or is_id("att", value)


def _ref(item: Any) -> ObjectRef:
    if not isinstance(item, dict) or set(item) != {"id", "sha256", "size"}:
        raise ServiceError(INVALID_REQUEST, "An object is named by id, sha256 and size.", field="objects")
    if not (is_id("obj", item["id"]) and is_sha256(item["sha256"]) and type(item["size"]) is int):
        raise ServiceError(INVALID_REQUEST, "An object's id, sha256 or size is malformed.", field="objects")
    return ObjectRef(item["id"], item["sha256"], item["size"])
