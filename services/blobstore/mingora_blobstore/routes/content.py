"""``/objects/:id/content``: the bytes, whole or one range of them."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Response, jsonify, request

from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, StoredObject
from mingora_blobstore.routes import schemas
from mingora_blobstore.routes.access import readable
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.reading import Reader
from mingora_common import ranges
from mingora_common.auth import LEASE, READ, USER
from mingora_common.errors import OBJECT_CORRUPT, OBJECT_INCOMPLETE, RANGE_NOT_SATISFIABLE, ServiceError
from mingora_common.http import needs
from mingora_common.openapi import describe
from mingora_common.schemas import TEXT


def blueprint(objects: Objects, reader: Reader) -> Blueprint:
    """The route over these uses of the store."""
    routes = Blueprint("content", __name__)

    @routes.get("/objects/<object_id>/content")
    @needs(READ, USER, LEASE)
    @describe(
        "An object's bytes, whole or one range of them.",
        {200: schemas.WHOLE, 206: schemas.RANGE, 304: schemas.UNCHANGED},
        headers={"Range": TEXT, "If-Range": TEXT, "If-None-Match": TEXT},
        errors=(OBJECT_INCOMPLETE, OBJECT_CORRUPT, RANGE_NOT_SATISFIABLE),
    )
    def content(object_id: str) -> Response:
        item = readable(objects, object_id)
        if item.state != COMPLETE:
            raise ServiceError(OBJECT_CORRUPT if item.state == CORRUPT else OBJECT_INCOMPLETE)
        answer = _answer(reader, item)
        answer.headers["ETag"] = f'"{item.sha256}"'
        answer.headers["Accept-Ranges"] = "bytes"
        answer.headers["X-Content-SHA256"] = item.sha256
        return answer

    return routes


def _answer(reader: Reader, item: StoredObject) -> Response:
    etag = f'"{item.sha256}"'
    if ranges.none_match(request.headers.get("If-None-Match"), etag):
        return Response(status=304)
    if request.method == "HEAD":  # a range is for GET alone
        return _bytes(b"", item.size)
    headers = request.headers
    try:
        span = ranges.requested(headers.get("Range"), headers.get("If-Range"), etag, item.size)
    except ranges.Unsatisfiable:
        answer = jsonify(ServiceError(RANGE_NOT_SATISFIABLE).body())
        answer.status_code = RANGE_NOT_SATISFIABLE.status
        answer.headers["Content-Range"] = f"bytes */{item.size}"
        return answer
    start, stop = span or (0, item.size)
    answer = _bytes(reader.open(item, start, stop), stop - start)
    if span is not None:
        answer.status_code = 206
        answer.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{item.size}"
    return answer


def _bytes(body: bytes | Iterator[bytes], length: int) -> Response:
    answer = Response(body, mimetype="application/octet-stream")
    answer.content_length = length
    return answer
