"""HTTP responses whose head is whole: http.client takes a connection that ends inside the headers for their end."""

from __future__ import annotations

import http.client
from typing import Any, cast


class WholeResponse(http.client.HTTPResponse):
    """Raises `RemoteDisconnected` where the head breaks off, so that no header that matters is missed unseen.

    A lost Content-Length would make an answer that was cut look empty and complete.
    """

    def begin(self) -> None:
        stream = self.fp
        self.fp = cast(Any, _WholeLines(stream))
        try:
            super().begin()
        finally:
            if self.fp is not None:  # a failure may have closed it
                self.fp = stream


class _WholeLines:
    """The lines of a response's head."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readline(self, limit: int) -> bytes:
        line = cast(bytes, self._stream.readline(limit))
        if len(line) < limit and not line.endswith(b"\n"):
            raise http.client.RemoteDisconnected("connection closed")
        return line

    def close(self) -> None:
        self._stream.close()
