"""A TCP proxy that breaks connections off after any number of bytes, in either direction."""

from __future__ import annotations

import contextlib
import random
import socket
import threading


class CuttingProxy:
    """Passes connections on to a port of this machine. Of each direction a `share` is cut, after up to `most` bytes.

    Half of the cuts come within the first 400 bytes, where the heads of requests and answers are.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.share = 0.0
        self.most = 60_000
        self.cuts = 0
        self._target = ("127.0.0.1", port)
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            upwards = threading.Thread(target=self._pass_on, args=(client, server, self._bytes_left()), daemon=True)
            upwards.start()
            self._pass_on(server, client, self._bytes_left())
            upwards.join()

    def _bytes_left(self) -> int | None:
        """How many bytes one direction of a connection passes before it is cut; None for all."""
        if self._random.random() >= self.share:
            return None
        return self._random.randrange(400 if self._random.random() < 0.5 else self.most)

    def _pass_on(self, source: socket.socket, sink: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if left is not None and len(data) >= left:
                    sink.sendall(data[:left])
                    self.cuts += 1
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
