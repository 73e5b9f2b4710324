"""A client that stalls or goes away in the middle of a body sent a short body; nothing more is read of it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from flask import Flask, Response, jsonify
from support import FakeClock

from mingora_common.auth import TokenReader
from mingora_common.http import json_body, make_app


class StallingBody(io.RawIOBase):
    """Gives one byte, then what a socket whose time is up gives."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, size: int = -1) -> bytes:
        self.reads += 1
        if self.reads == 1:
            return b"{"
        raise BlockingIOError


@pytest.fixture
def app() -> Flask:
    app = make_app("test", TokenReader(None, FakeClock()))  # type: ignore[arg-type]  # no route asks for a token

    @app.post("/echo")
    def echo() -> Response:
        return jsonify(json_body(("a",)))

    return app


@pytest.mark.req("REST-2")
def test_a_stalled_body_is_a_malformed_request(app: Flask) -> None:
    body = StallingBody()
    environ: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": "1000"}
    with app.test_client() as client:
        answer = client.post("/echo", content_type="application/json", environ_overrides=environ)
    assert answer.status_code == 400
    assert answer.get_json()["error"]["code"] == "invalid_request"
    assert body.reads == 2
