"""``GET /agirlik``: the published adapter's bytes, whole or one range of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from flask import Blueprint, Response, request

from mingora_common import ranges
from mingora_common.pace import PATIENCE_SECONDS
from mingora_coordinator.routes.slots import Slots
from mingora_coordinator.routes.wire import WireError
from mingora_coordinator.store.counters import Counter, Counters
from mingora_coordinator.training.training import Training

SEND_STEP = 1 << 18
# Who takes fewer bytes a second, over all, is cut off: it would keep a thread for as long as it likes.
LEAST_RATE = 4096


def blueprint(training: Training, slots: Slots) -> Blueprint:
    """The route."""
    routes = Blueprint("agirlik", __name__)

    @routes.get("/agirlik")
    def agirlik() -> Response:
        published = training.published
        etag = f'"{published.digest}"'
        about = {
            "X-Tur": str(published.number),
            "X-Sha256": published.digest,
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-cache",
        }
        if ranges.none_match(request.headers.get("If-None-Match"), etag):
            return Response(status=304, headers=about)
        try:
            span = ranges.requested(request.headers.get("Range"), request.headers.get("If-Range"), etag, published.size)
        except ranges.Unsatisfiable:
            raise WireError(416, "aralık geçersiz", {"Content-Range": f"bytes */{published.size}"}) from None
        start, stop = (0, published.size) if span is None or request.method == "HEAD" else span
        if request.method == "HEAD":
            response = Response(b"", headers=about, mimetype="application/octet-stream")
        else:
            if not published.folder.adapter.is_file():
                raise WireError(503, "adaptör okunamıyor")
            # A published adapter's file never changes, also when it is no longer the newest.
            slots.take()
            body = _part(published.folder.adapter, start, stop, training.counters)
            response = Response(body, headers=about, mimetype="application/octet-stream")
            response.call_on_close(slots.free)
        response.content_length = stop - start
        if span is not None and request.method != "HEAD":
            response.status_code = 206
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{published.size}"
        return response

    return routes


def _part(path: Path, start: int, stop: int, counters: Counters) -> Iterator[bytes]:
    """A part of a file as the body of an answer; counts what was taken of it."""
    sent = 0
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            began = time.monotonic()
            while sent < stop - start and (piece := file.read(min(SEND_STEP, stop - start - sent))):
                yield piece
                sent += len(piece)
                if time.monotonic() - began > PATIENCE_SECONDS + sent / LEAST_RATE:
                    return  # the client can go on with a range
    finally:
        counters.add(Counter.SENT, sent)
