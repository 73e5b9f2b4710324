"""What volunteers ask for: the adapter, beside plain ``send_file``; their task, beside slow uploads and in a crowd."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import Flask, Response, send_file

from bench import plain
from bench.coordinator_server import HOST, coordinator, fetch
from bench.coordinator_targets import at_least, at_most
from bench.slow import dribbling
from bench.stack import percentile
from devtools.processes import Processes

FILE = "MINGORA_BENCH_FILE"
ROUNDS = 7
CLIENTS, DOWNLOADS = 2, 3
PROCESSES = 2
SLOW_UPLOADS = 50
REQUESTS = 500
SLOW_ROUNDS = 3
CROWD = 1000
CROWD_SECONDS = 10.0


def application() -> Flask:
    """A plain endpoint that sends the file ``MINGORA_BENCH_FILE``."""
    app = Flask(__name__)

    @app.get("/")
    def whole() -> Response:
        return send_file(os.environ[FILE], mimetype="application/octet-stream")

    return app


def figures(folder: Path, processes: Processes) -> dict[str, Any]:
    """Median adapters a second in turn, with the plain endpoint's own bound; latencies and rates of ``/gorev``."""
    adapter = folder / "globe.safetensors"
    total = CLIENTS * DOWNLOADS
    ours, theirs, bounds = [], [], []
    with (
        coordinator(folder / "serve", adapter, processes) as running,
        _sender(adapter, processes) as port,
    ):
        for _ in range(ROUNDS):
            ours.append(total / fetch(running.port, "/agirlik", DOWNLOADS, CLIENTS))
            theirs.append(total / fetch(port, "/", DOWNLOADS, CLIENTS))
            bounds.append(total / _bound(adapter))
        slow: list[float] = []
        with _slow_uploads(running.port, adapter.stat().st_size):
            for _ in range(SLOW_ROUNDS):
                slow += _tasks(running.port)
        answered, waits = _crowd(running.port)
    rate, other, bound = statistics.median(ours), statistics.median(theirs), statistics.median(bounds)
    return {
        "agirlikPerSecond": round(rate, 1),
        "sendFilePerSecond": round(other, 1),
        "agirlikToSendFile": at_least(rate / other, 0.5),
        "sendFileToBound": round(other / bound, 2),
        "gorevBesideSlowP99Ms": at_most(1000 * percentile(slow, 0.99), 50),
        "gorevBesideSlowP50Ms": round(1000 * percentile(slow, 0.5), 1),
        "gorevCrowdPerSecond": round(answered / CROWD_SECONDS),
        "gorevCrowdP99Ms": round(1000 * percentile(waits, 0.99)),
        "serveValid": other / bound >= plain.LEAST_TO_BOUND,
    }


@contextlib.contextmanager
def _sender(file: Path, processes: Processes) -> Iterator[int]:
    child = processes.start(
        sys.executable, "-m", "gunicorn", "--bind", f"{HOST}:0", "--threads", "16", "--workers", str(PROCESSES),
        "bench.coordinator_serve:application()", env={**os.environ, FILE: str(file)}, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    for line in child.stderr:
        if "Listening at" in line:
            threading.Thread(target=child.stderr.read, daemon=True).start()
            yield int(line.split(f"http://{HOST}:")[1].split()[0])
            return
    raise RuntimeError("the comparator didn't start")


def _bound(file: Path) -> float:
    """Seconds to send the file as often over as many bare TCP connections, from the page cache: all but HTTP."""

    def give(connection: socket.socket) -> None:
        with connection, file.open("rb") as opened:
            for _ in range(DOWNLOADS):
                opened.seek(0)
                connection.sendfile(opened)

    def take(connection: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        while connection.recv_into(buffer):
            pass

    with contextlib.ExitStack() as stack:
        threads = []
        for _ in range(CLIENTS):
            near, far = plain.connection(stack)
            threads += [threading.Thread(target=give, args=(near,)), threading.Thread(target=take, args=(far,))]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began


@contextlib.contextmanager
def _slow_uploads(port: int, size: int) -> Iterator[None]:
    """Clients that each send a result's body a byte a second, for as long as the block runs."""
    with contextlib.ExitStack() as opened:
        connections = []
        for number in range(SLOW_UPLOADS):
            connection = opened.enter_context(socket.create_connection((HOST, port), timeout=10))
            head = f"POST /sonuc?isci=slow-{number}&tur=0 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n"
            connection.sendall(head.encode())
            connections.append(connection)
        with dribbling(connections):
            yield


def _tasks(port: int) -> list[float]:
    """Seconds that each of some requests for a task took, one after the other."""
    taken = []
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
        for _ in range(REQUESTS):
            began = time.monotonic()
            connection.request("GET", "/gorev?isci=quick")
            connection.getresponse().read()
            taken.append(time.monotonic() - began)
            time.sleep(0.002)
    return taken


class _Worker:
    """One of the crowd, on its kept-alive connection."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self._connection = connection
        self._request = f"GET /gorev?isci=crowd-{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        self._answer = b""
        self.asked = 0.0

    def ask(self) -> None:
        self._answer, self.asked = b"", time.monotonic()
        self._connection.sendall(self._request)

    def answered(self) -> bool:
        """Read what has come; whether that is the whole answer."""
        piece = self._connection.recv(1 << 16)
        self._answer += piece
        head, _, body = self._answer.partition(b"\r\n\r\n")
        if not piece or not head.startswith(b"HTTP/1.1 200 "[: len(head)]):
            raise RuntimeError(f"a worker of the crowd got no task: {self._answer[:80]!r}")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        return length is not None and len(body) == int(length[1])


def _crowd(port: int) -> tuple[int, list[float]]:
    """Workers that poll over a connection each, as fast as they are answered: how many answers, and their seconds.

    The first half second, in which they all connect, doesn't count.
    """
    waits: list[float] = []
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for number in range(CROWD):
            connection = opened.enter_context(socket.create_connection((HOST, port), timeout=30))
            worker = _Worker(connection, number)
            selector.register(connection, selectors.EVENT_READ, worker)
            worker.ask()
        start = time.monotonic() + 0.5
        while (now := time.monotonic()) < start + CROWD_SECONDS:
            for key, _events in selector.select(0.1):
                worker = key.data
                if worker.answered():
                    if now >= start:
                        waits.append(time.monotonic() - worker.asked)
                    worker.ask()
    return len(waits), waits
