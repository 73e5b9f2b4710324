"""A coordinator that a test makes misbehave: each path has a script of answers, the last of which stays."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Answer = Callable[["Handler"], None]


@dataclass(frozen=True)
class Seen:
    """A request that came; `headers` has lower-case names."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HostileCoordinator

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers["Content-Length"])))

    def _handle(self, body: bytes) -> None:
        self.close_connection = True
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.server.seen.append(Seen(self.command, parts.path, query, headers, body))
        script = self.server.scripts.get(parts.path, [refuse(404)])
        answer = script.pop(0) if len(script) > 1 else script[0]
        with contextlib.suppress(ConnectionError):
            answer(self)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: Any) -> None: ...


class HostileCoordinator(ThreadingHTTPServer):
    """On a port of 127.0.0.1 of its own, from `with` to its end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scripts: dict[str, list[Answer]] = {}
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the tests are about."""

    def __enter__(self) -> HostileCoordinator:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()
        self.server_close()


def say(data: Any, status: int = 200, **headers: str) -> Answer:
    return lambda handler: handler.reply(status, json.dumps(data).encode(), **headers)


def refuse(status: int, reason: str = "olmaz", **headers: str) -> Answer:
    return say({"hata": reason}, status, **headers)


def send(body: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda handler: handler.reply(status, body, **headers)


def hang_up(handler: Handler) -> None:
    """No answer at all."""
    handler.connection.close()


def without_end(status: int = 200) -> Answer:
    """A body that goes on as long as somebody reads."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 65536)

    return answer


def dribble(status: int = 200) -> Answer:
    """A body of a byte now and then, as long as somebody reads."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.end_headers()
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)

    return answer


def continue_for_ever(handler: Handler) -> None:
    """No answer, but one interim response after the other."""
    while True:
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)
