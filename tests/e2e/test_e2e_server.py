"""The server in front of the services, as somebody on the network meets it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from e2e_support import RunningStack, prompt

SLOW_CLIENTS = 300


@pytest.fixture
def connection(stack: RunningStack) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection(address(stack)[0], address(stack)[1], timeout=20)) as opened:
        yield opened


def address(stack: RunningStack) -> tuple[str, int]:
    parts = urlsplit(stack.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_answer(connection: http.client.HTTPConnection, path: str) -> None:
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (200, "ok")


@pytest.mark.req("REST-1", "REST-2")
@pytest.mark.parametrize("service", ["jobs", "objects", "nodes", "explain/job_aaaaaaaaaaaaaaaa", "account"])
def test_every_service_asks_for_a_token(connection: http.client.HTTPConnection, service: str) -> None:
    connection.request("GET", f"/api/research/v1/{service}")
    answer = connection.getresponse()
    assert answer.status == 401
    assert json.loads(answer.read())["error"]["code"] == "invalid_token"
    assert answer.headers["X-Request-Id"]


@pytest.mark.req("REST-1")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_internal_calls_need_the_key(connection: http.client.HTTPConnection, method: str) -> None:
    path = "/internal/pins" if method == "POST" else "/internal/pins/job_aaaaaaaaaaaaaaaa"
    connection.request(method, path, b"{}", {"Content-Type": "application/json", "X-Internal-Key": "guessed"})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (404, "not_found")


@pytest.mark.req("REST-1")
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/internal/pins", "/internal/pins/job_aaaaaaaaaaaaaaaa", "/internal/x"])
def test_without_a_key_there_is_nothing_internal(
    connection: http.client.HTTPConnection, method: str, path: str
) -> None:  # fmt: skip
    connection.request(method, path)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (404, "not_found")


@pytest.mark.req("REST-2")
def test_no_method_answers_without_a_token(connection: http.client.HTTPConnection) -> None:
    connection.request("OPTIONS", "/api/research/v1/jobs")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.req("OPS-2")
def test_slow_clients_keep_nobody_out(stack: RunningStack, connection: http.client.HTTPConnection) -> None:
    head = (
        b"POST /api/research/v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{"
    )
    with contextlib.ExitStack() as opened:
        slow = [opened.enter_context(socket.create_connection(address(stack))) for _ in range(SLOW_CLIENTS)]
        for client in slow:
            client.sendall(head)
        time.sleep(0.5)
        started = time.monotonic()
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        assert time.monotonic() - started < prompt(5)


@pytest.mark.req("REST-2")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /api/research/v1/jobs?a=" + "x" * 9000 + " HTTP/1.1\r\n", 414),
        ("GET /api/research/v1/jobs HTTP/1.1\r\nX-A: " + "x" * 9000 + "\r\n", 431),
        ("POST /api/research/v1/jobs HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n", 400),
    ],
)
def test_what_cant_be_read_as_a_request_is_an_error_like_any_other(stack: RunningStack, head: str, status: int) -> None:
    with socket.create_connection(address(stack), timeout=20) as connection:
        connection.sendall(f"{head}Host: x\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        error = json.loads(answer.read())["error"]
    assert (answer.status, error["code"], error["retryable"]) == (status, "invalid_request", False)
