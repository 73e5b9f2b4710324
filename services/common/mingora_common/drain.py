"""Reading what is left of a refused request's body, so that its sender gets the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from gunicorn.http.errors import ParseException

from mingora_common.pace import Paced

# What is read and thrown away of a refused request's body, so that the client gets the answer and not a reset.
DRAIN_BYTES = 32 * 1024 * 1024
DRAIN_SECONDS = 10.0
DRAIN_STEP = 256 * 1024
# WSGI environment: the counted request body.
BODY = "mingora.body"
# A connection that is cut or stalls, and chunks that are none.
_BROKEN = (OSError, ParseException)


class DrainBody:
    """WSGI middleware: before an answer goes out, read what is left of the request's body if that is at most ``most``.

    A server that answers and closes while the client still sends makes the client see a reset instead of the 413 or
    401 that it should read.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], most: int = DRAIN_BYTES) -> None:
        self._app = app
        self._most = most

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        chunked, length = "HTTP_TRANSFER_ENCODING" in environ, environ.get("CONTENT_LENGTH") or "0"
        if not chunked and (not length.isdecimal() or int(length) == 0):
            return self._app(environ, start_response)
        body = _CountedInput(environ["wsgi.input"])
        environ["wsgi.input"] = environ[BODY] = body
        answer = self._app(environ, start_response)
        left = self._most if chunked else int(length) - body.taken
        if 0 < left <= self._most and not body.ended:
            connection = environ.get("gunicorn.socket")
            if isinstance(connection, Paced):
                connection.hurry(DRAIN_SECONDS)  # within a read, the deadline of drain() isn't looked at
            body.drain(left)
        return answer


class _CountedInput:
    """A request body that knows how much of it has been taken.

    A connection that breaks or stalls ends it, as do broken chunks: to a service it is a body that is too short.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.taken = 0
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        return self._count(self._stream.read, size)

    def readline(self, size: int = -1) -> bytes:
        return self._count(self._stream.readline, size)

    def __iter__(self) -> Any:
        return iter(self.readline, b"")

    def drain(self, left: int) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        try:
            while left > 0 and time.monotonic() < deadline:
                data = self._stream.read(min(left, DRAIN_STEP))
                if not data:
                    return
                left -= len(data)
        except _BROKEN:
            return

    def _count(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except _BROKEN:
            data = b""
        self.ended = self.ended or (not data and size != 0)
        self.taken += len(data)
        return data
