"""HTTP responses with a deadline for the whole of them: a timeout of the socket alone begins anew with every byte."""

from __future__ import annotations

import io
import socket
import time
from typing import Any, cast

from mingora.response import WholeResponse


class TimedResponse(WholeResponse):
    """Raises `TimeoutError` from any read `seconds` after it was made, unless the deadline was lifted by then."""

    def __init__(self, sock: socket.socket, *words: Any, seconds: float, **more: Any) -> None:
        super().__init__(sock, *words, **more)
        self._line = _TimedLine(sock, self.fp.detach(), time.monotonic() + seconds)
        self.fp = io.BufferedReader(self._line)

    def lift_deadline(self, silence: float) -> None:
        """From now on only each read has its time, `silence` in seconds."""
        self._line.lift(silence)


class _TimedLine(io.RawIOBase):
    """What comes in from `sock`, whose own stream is `raw`, until the `end`, in seconds of the monotonic clock."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, end: float) -> None:
        self._sock = sock
        self._raw = raw
        self._end: float | None = end

    def lift(self, silence: float) -> None:
        self._end = None
        self._sock.settimeout(silence)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._end is not None:
            left = self._end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
        return cast(Any, self._raw).readinto(buffer)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._raw.close()
        super().close()
