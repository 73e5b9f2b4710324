"""``/objects``: opening, completing, listing, showing and deleting."""

from __future__ import annotations

import re
from typing import Any

from flask import Blueprint, Response, jsonify, request

from mingora_blobstore.domain.objects import StoredObject, is_sha256
from mingora_blobstore.domain.openings import FIELDS, Wanted
from mingora_blobstore.routes import schemas
from mingora_blobstore.routes.access import kinds_to_open, readable
from mingora_blobstore.routes.render import render
from mingora_blobstore.routes.schemas import MAX_BATCH, MAX_PAGE
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.openings import Opened, Openings
from mingora_blobstore.store.removal import Removal
from mingora_blobstore.store.uploads import Uploads
from mingora_common.auth import LEASE, READ, USER, WRITE
from mingora_common.errors import (
    DIGEST_MISMATCH,
    FILE_TOO_LARGE,
    INVALID_REQUEST,
    OBJECT_CORRUPT,
    OBJECT_IN_USE,
    OBJECT_INCOMPLETE,
    QUOTA_EXCEEDED,
    ServiceError,
)
from mingora_common.http import json_body, needs, no_content, principal, query_int
from mingora_common.openapi import Answer, describe
from mingora_common.schemas import SHA256, number, record

_CURSOR = re.compile(r"([0-9]{1,15})\.(obj_[A-Za-z0-9_-]{8,64})")


def blueprint(objects: Objects, openings: Openings, uploads: Uploads, removal: Removal) -> Blueprint:
    """The routes over these uses of the store."""
    routes = Blueprint("objects", __name__)

    def show(item: StoredObject) -> dict[str, Any]:
        return render(objects.views([item])[0])

    def open_all(wanted: list[Wanted]) -> list[Opened | ServiceError]:
        caller = principal()
        return openings.open(caller.account_id, caller.limits, wanted)

    @routes.post("/objects")
    @needs(WRITE, USER, LEASE)
    @describe(
        "Open an object, or find the account's one of that content.",
        {201: schemas.OBJECT, 200: Answer(schemas.OBJECT, says="The account's object of that digest and size.")},
        body=schemas.WANTED,
        errors=(QUOTA_EXCEEDED, FILE_TOO_LARGE),
    )
    def open_one() -> tuple[Response, int]:
        answer = open_all([Wanted.parse(json_body(FIELDS), kinds_to_open())])[0]
        if isinstance(answer, ServiceError):
            raise answer
        return jsonify(show(answer.object)), 201 if answer.fresh else 200

    @routes.post("/objects/batch")
    @needs(WRITE, USER, LEASE)
    @describe("Open many objects at once, each by itself.", {200: schemas.BATCH_OPENED}, body=schemas.BATCH)
    def open_batch() -> Response:
        items = json_body(["objects"]).get("objects")
        if not isinstance(items, list) or not 1 <= len(items) <= MAX_BATCH:
            raise ServiceError(INVALID_REQUEST, f"objects must list 1 to {MAX_BATCH} objects.", field="objects")
        parsed = [_parse(item) for item in items]
        opened = iter(open_all([item for item in parsed if isinstance(item, Wanted)]))
        answers = [next(opened) if isinstance(item, Wanted) else item for item in parsed]
        views = iter(objects.views([answer.object for answer in answers if isinstance(answer, Opened)]))
        return jsonify(
            objects=[render(next(views)) if isinstance(answer, Opened) else answer.body() for answer in answers]
        )

    @routes.post("/objects/<object_id>/complete")
    @needs(WRITE, USER, LEASE)
    @describe(
        "Check that an object is whole, and freeze it.",
        {200: schemas.OBJECT},
        body=record({}),
        body_needed=False,
        errors=(OBJECT_INCOMPLETE, OBJECT_CORRUPT, DIGEST_MISMATCH),
    )
    def complete(object_id: str) -> Response:
        json_body((), empty_ok=True)
        account_id = principal().account_id
        uploads.complete(objects.find(account_id, object_id))
        return jsonify(show(objects.find(account_id, object_id)))

    @routes.get("/objects")
    @needs(READ)
    @describe(
        "The account's objects, and what they take.",
        {200: schemas.PAGE},
        query={"limit": number(1, MAX_PAGE), "after": schemas.CURSOR, "sha256": SHA256},
    )
    def page() -> Response:
        caller = principal()
        limit = query_int("limit", 100, minimum=1, maximum=MAX_PAGE)
        sha256 = request.args.get("sha256")
        if sha256 is not None and not is_sha256(sha256):
            raise ServiceError(INVALID_REQUEST, "sha256 must be 64 lower-case hex characters.", field="sha256")
        found = objects.page(caller.account_id, limit=limit + 1, after=_cursor(), sha256=sha256)
        shown, more = found[:limit], len(found) > limit
        usage = objects.usage(caller.account_id)
        return jsonify(
            objects=[render(view) for view in objects.views(shown)],
            next=f"{shown[-1].created_at}.{shown[-1].id}" if more else None,
            usage={
                "bytes": usage.bytes,
                "files": usage.files,
                "maxBytes": caller.limits.max_bytes,
                "maxFiles": caller.limits.max_files,
            },
        )

    @routes.get("/objects/<object_id>")
    @needs(READ, USER, LEASE)
    @describe("An object, and which parts of it are there.", {200: schemas.OBJECT})
    def one(object_id: str) -> Response:
        return jsonify(show(readable(objects, object_id)))

    @routes.delete("/objects/<object_id>")
    @needs(WRITE)
    @describe("Delete an object that no job holds.", {204: None}, errors=(OBJECT_IN_USE,))
    def delete(object_id: str) -> Response:
        removal.delete(principal().account_id, object_id)
        return no_content()

    return routes


def _parse(item: Any) -> Wanted | ServiceError:
    try:
        return Wanted.parse(item, kinds_to_open())
    except ServiceError as refusal:
        return refusal


def _cursor() -> tuple[int, str] | None:
    text = request.args.get("after")
    if text is None:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise ServiceError(INVALID_REQUEST, "after must be the next of an earlier answer.", field="after")
    return int(match[1]), match[2]
