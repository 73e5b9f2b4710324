"""``PUT /objects/:id/parts/:index``: one part's bytes, hashed as they come in."""

from __future__ import annotations

import hashlib

from flask import Blueprint, Response, jsonify, request

from mingora_blobstore.domain.objects import OPEN, is_sha256
from mingora_blobstore.domain.uploads import check_index, part_index, refusal
from mingora_blobstore.routes import schemas
from mingora_blobstore.store.content import PIECE
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.uploads import Uploads
from mingora_common.auth import LEASE, USER, WRITE
from mingora_common.errors import (
    DIGEST_MISMATCH,
    INVALID_REQUEST,
    OBJECT_CORRUPT,
    OBJECT_FROZEN,
    PART_CONFLICT,
    ServiceError,
)
from mingora_common.http import content_length, needs, principal
from mingora_common.openapi import OCTETS, describe
from mingora_common.schemas import BYTES, SHA256, one_of


def blueprint(objects: Objects, uploads: Uploads) -> Blueprint:
    """The route over these uses of the store."""
    routes = Blueprint("parts", __name__)

    @routes.put("/objects/<object_id>/parts/<index>")
    @needs(WRITE, USER, LEASE)
    @describe(
        "Send a part's bytes. The same bytes again succeed.",
        {200: schemas.PART},
        body=BYTES,
        body_media=OCTETS,
        query={"complete": one_of("0", "1")},
        headers={"X-Content-SHA256": SHA256},
        needed=("X-Content-SHA256",),
        path={"index": schemas.INDEX},
        errors=(PART_CONFLICT, OBJECT_FROZEN, OBJECT_CORRUPT, DIGEST_MISMATCH),
    )
    def put(object_id: str, index: str) -> Response:
        number = part_index(index)
        item, held = objects.find_with_part(principal().account_id, object_id, number)
        check_index(number, item)
        size = _length(item.part_bytes(number))
        sha256 = _digest()
        and_complete = _and_complete()
        kind = refusal(item.state, held, sha256)
        if kind is not None:
            raise ServiceError(kind)  # before a byte has been read
        data = _body(size, sha256)
        if held is None:
            uploads.put(item, number, sha256, data)
        state = uploads.complete_if_whole(item) if and_complete and item.state == OPEN else item.state
        return jsonify(index=number, size=size, sha256=sha256, state=state)

    return routes


def _length(exact: int) -> int:
    """The Content-Length, which must be the part's exact size: 411, 413 over, 400 under."""
    length = content_length(maximum=exact)
    if length < exact:
        raise ServiceError(INVALID_REQUEST, f"This part has {exact} bytes, not {length}.", field="Content-Length")
    return length


def _digest() -> str:
    sha256 = request.headers.get("X-Content-SHA256")
    if not is_sha256(sha256):
        raise ServiceError(
            INVALID_REQUEST, "X-Content-SHA256 must be 64 lower-case hex characters.", field="X-Content-SHA256"
        )
    return str(sha256)


def _and_complete() -> bool:
    text = request.args.get("complete", "0")
    if text not in ("0", "1"):
        raise ServiceError(INVALID_REQUEST, "complete must be 0 or 1.", field="complete")
    return text == "1"


def _body(size: int, sha256: str) -> bytes:
    digest, pieces, left = hashlib.sha256(), [], size
    stream = request.environ["wsgi.input"]  # request.stream would copy every byte twice more
    while left:
        piece = stream.read(min(left, PIECE))
        if not piece:
            raise ServiceError(INVALID_REQUEST, "The body ended before its Content-Length.")
        digest.update(piece)
        pieces.append(piece)
        left -= len(piece)
    if digest.hexdigest() != sha256:
        raise ServiceError(DIGEST_MISMATCH)
    return b"".join(pieces)
