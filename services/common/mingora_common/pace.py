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

    def begin_request(self) -> None:
        """Another request begins, with all the time it may take."""
        self._seconds, self._received = 0.0, 0

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As a socket's; raises ``TimeoutError`` once the client has been too slow."""
        started = time.monotonic()
        data: bytes = super().recv(buflen, flags)  # type: ignore[misc]
        self._seconds += time.monotonic() - started
        self._received += len(data)
        if self._seconds > PATIENCE_SECONDS + self._received / LEAST_RATE:
            raise TimeoutError("the client sends too slowly")
        return data


class PacedConnection(Paced, socket.socket):
    """An accepted connection, taken over from ``accepted``."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
