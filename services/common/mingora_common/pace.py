"""Connections of which a request has to arrive at a least pace: who dribbles bytes would keep a thread for ever."""

from __future__ import annotations

import socket
import time

# The time that receiving one request may take: this, and a second for each LEAST_RATE of its bytes.
PATIENCE_SECONDS = 30.0
LEAST_RATE = 1024  # bytes a second; what doesn't move at all ends sooner or later by serving.STALL_SECONDS


class Paced:
    """A socket's part that keeps count. Only waiting for the client counts, not what the service does meanwhile."""

    _seconds = 0.0
    _received = 0
    _limit: float | None = None

    def begin_request(self) -> None:
        """Another request begins, with all the time it may take."""
        self._seconds, self._received, self._limit = 0.0, 0, None

    def hurry(self, seconds: float) -> None:
        """The rest of this request is only taken so that the client reads the answer: it may take ``seconds``."""
        self._limit = self._seconds + seconds

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As a socket's; raises ``TimeoutError`` once the client has been too slow."""
        started = time.monotonic()
        data: bytes = super().recv(buflen, flags)  # type: ignore[misc]
        self._seconds += time.monotonic() - started
        self._received += len(data)
        limit = PATIENCE_SECONDS + self._received / LEAST_RATE if self._limit is None else self._limit
        if self._seconds > limit:
            raise TimeoutError("the client sends too slowly")
        return data


class PacedConnection(Paced, socket.socket):
    """An accepted connection, taken over from ``accepted``."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
