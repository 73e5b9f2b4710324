"""What a container writes to its own output: the last words of its init and, where no pipe can be shared, the job's.

It is read by attaching before the start. An attached reader that stalls makes the engine hang, so the one of the words
never does, and `close` comes before a kill.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Generator
from typing import Any

from docker.utils.socket import read as read_some

from mingora_worker.runtimes.docker.engine import FAILURES, Engine

# The container's init, tini, says at its end how its child ended, which the engine's exit code doesn't: 137 is both
# `exit 137` and SIGKILL. It is asked for by TINI_VERBOSITY=2 and written at once when it ends.
_FIRST = b"[INFO  tini (1)] Spawned child process '"
_SAID = re.compile(
    re.escape(_FIRST) + rb"[^\0]{0,4096}?' with pid '\d+'\n"
    rb"\[INFO  tini \(1\)\] Main child exited (?:normally|with signal) \(with (status|signal) '([^'\n]{1,60})'\)\n",
    re.DOTALL,
)
# No longer than this is held back, or kept, to see whether it is what init says.
_LONGEST = 8_192
_HEADER = 8
READ_BYTES = 64 * 1024


def last_words(tail: bytes) -> tuple[str, str] | None:
    """What init said at the end of the output: ("status", "137") or ("signal", "Killed")."""
    found = list(_SAID.finditer(tail))
    return (found[-1][1].decode(), found[-1][2].decode("utf-8", "replace")) if found else None


class Attached:
    """Attached to a container that isn't started yet. Made for one of two uses: `keep` in a thread, or `read`."""

    def __init__(self, engine: Engine, id: str) -> None:
        self._socket: Any = engine.client.api.attach_socket(id, {"stdout": 1, "stderr": 1, "stream": 1})
        # What the SDK gives out is a file around the socket of a response. The reader closes both at the end, as nobody
        # else knows when they aren't used any more.
        self._connection: Any = getattr(self._socket, "_sock", self._socket)
        self._chunks = self._joined()
        self._pending = b""
        self._over = threading.Event()
        self.tail = b""
        """The last of what was written, once `wait` has returned."""
        self.passed = 0
        """Bytes read so far."""

    def keep(self) -> None:
        """Reads to the end, and keeps no more than the tail."""
        while self.read(READ_BYTES):
            pass

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, at least one; none at the end. What init says isn't part of it."""
        if not self._pending:
            self._pending = next(self._chunks, b"")
        data, self._pending = self._pending[:size], self._pending[size:]
        self.passed += len(data)
        if not data:
            self._over.set()
        return data

    def wait(self, seconds: float) -> bytes:
        """The tail, when all is read; what there is of it after `seconds`."""
        self._over.wait(seconds)
        return self.tail

    def wake(self) -> None:
        """Nothing to do: the engine ends the stream with the container."""

    def close(self) -> None:
        """Breaks the connection off, also under a reader in another thread. May be called again."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _joined(self) -> Generator[bytes, None, None]:
        """The payload without what init says. What may be its beginning waits for what follows."""
        held = b""
        for data in self._payload():
            self.tail = (self.tail + data)[-_LONGEST:]
            held += data
            keep = _beginning(held)
            if len(held) - keep > _LONGEST:
                keep = len(held)
            if keep:
                yield held[:keep]
                held = held[keep:]
        found = _SAID.match(held)
        if found is not None:
            held = held[found.end() :]
        if held:
            yield held

    def _payload(self) -> Generator[bytes, None, None]:
        framed = b""
        with contextlib.suppress(*FAILURES, ValueError), contextlib.closing(self._socket), self._connection:
            while data := read_some(self._socket, READ_BYTES):
                payload, framed = unframed(framed + data)
                if payload:
                    yield payload


def unframed(data: bytes) -> tuple[bytes, bytes]:
    """The payload of the whole frames in `data`, and what is left of it.

    A frame is a byte for the stream, three of nothing, four for the length, and as many bytes (Docker's attach format).
    """
    parts, at, end = [], 0, len(data)
    while at + _HEADER <= end:
        after = at + _HEADER + int.from_bytes(data[at + 4 : at + _HEADER], "big")
        if after > end:
            break
        parts.append(data[at + _HEADER : after])
        at = after
    return b"".join(parts), data[at:]


def _beginning(held: bytes) -> int:
    """Where in `held` init may have begun to speak: everything before it is the job's for certain."""
    at = held.rfind(_FIRST)
    if at >= 0:
        return at
    for size in range(min(len(_FIRST) - 1, len(held)), 0, -1):
        if held.endswith(_FIRST[:size]):
            return len(held) - size
    return len(held)
