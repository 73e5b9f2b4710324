"""Clients that send a byte a second, as somebody does who wants to keep a server's threads."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def dribbling(connections: Sequence[socket.socket]) -> Iterator[None]:
    """A byte a second on each connection, for as long as the block runs; it begins once the first have gone out."""
    stop = threading.Event()

    def dribble() -> None:
        while not stop.wait(1):
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(b"x")

    thread = threading.Thread(target=dribble)
    thread.start()
    time.sleep(1)
    try:
        yield
    finally:
        stop.set()
        thread.join()
