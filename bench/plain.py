"""The comparator for bytes in: a plain gunicorn endpoint that hashes the body, writes it to a file and fsyncs it.

And its own bound in the same run: the same bytes over bare TCP connections, hashed, written and fsynced.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from devtools.processes import Processes

FOLDER = "MINGORA_BENCH_FOLDER"
# A comparator that is far from its own bound compares nothing.
LEAST_TO_BOUND = 0.7


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """PUT a body: read in 1 MiB steps, hash, write, fsync, answer the digest."""
    left, digest = int(environ["CONTENT_LENGTH"]), hashlib.sha256()
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    with path.open("wb", buffering=0) as file:
        while left:
            data = environ["wsgi.input"].read(min(left, 1 << 20))
            digest.update(data)
            file.write(data)
            left -= len(data)
        os.fsync(file.fileno())
    start_response("200 OK", [("Content-Length", "64")])
    return [digest.hexdigest().encode()]


def clear(folder: Path) -> None:
    """Give the disk and the page cache what the endpoint stored, so that a later round isn't slower for it."""
    for path in folder.iterdir():
        path.unlink()


@contextlib.contextmanager
def server(folder: Path, processes: Processes, workers: int = 1) -> Iterator[tuple[str, int]]:
    """The endpoint behind gunicorn with threads in ``workers`` processes, as ``(host, port)``."""
    folder.mkdir()
    child = processes.start(
        sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--threads", "16", "--workers", str(workers),
        "bench.plain:application",
        env={**os.environ, FOLDER: str(folder)}, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    for line in child.stderr:
        if "Listening at" in line:
            port = int(line.split("http://127.0.0.1:")[1].split()[0])
            threading.Thread(target=child.stderr.read, daemon=True).start()
            yield "127.0.0.1", port
            return
    raise RuntimeError("the comparator didn't start")


def put(host: str, port: int, bodies: list[bytes], threads: int) -> float:
    """Send ``bodies`` over ``threads`` kept-alive connections; seconds until the last answer."""
    pending, lock = list(bodies), threading.Lock()

    def send() -> None:
        connection = http.client.HTTPConnection(host, port)
        while True:
            with lock:
                if not pending:
                    break
                body = pending.pop()
            connection.request("PUT", "/", body)
            connection.getresponse().read()
        connection.close()

    started = time.monotonic()
    workers = [threading.Thread(target=send) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.monotonic() - started


def bound(folder: Path, bodies: list[bytes], threads: int) -> float:
    """Seconds to send ``bodies`` over as many bare TCP connections, hash, write and fsync them: all but HTTP."""
    folder.mkdir()
    pending, lock = list(enumerate(bodies)), threading.Lock()

    def send(near: socket.socket, far: socket.socket) -> None:
        while True:
            with lock:
                if not pending:
                    return
                number, body = pending.pop()
            receiver = threading.Thread(target=_store, args=(far, folder / str(number), len(body)))
            receiver.start()
            near.sendall(body)
            receiver.join()

    with contextlib.ExitStack() as stack:
        pairs = [connection(stack) for _ in range(threads)]
        senders = [threading.Thread(target=send, args=pair) for pair in pairs]
        started = time.monotonic()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        seconds = time.monotonic() - started
    clear(folder)
    return seconds


def connection(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = stack.enter_context(socket.create_connection(listener.getsockname()))
        return near, stack.enter_context(listener.accept()[0])


def _store(connection: socket.socket, path: Path, size: int) -> None:
    digest, buffer, left = hashlib.sha256(), memoryview(bytearray(1 << 20)), size
    with path.open("wb", buffering=0) as file:
        while left:
            received = connection.recv_into(buffer[:left])
            digest.update(buffer[:received])
            file.write(buffer[:received])
            left -= received
        os.fsync(file.fileno())
