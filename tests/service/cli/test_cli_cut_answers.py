"""An answer that breaks off at any byte is never taken for a whole one (CLI-10)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from service.cli.mingora_fake import TOKEN

from mingora.errors import LostAnswer, OutcomeUnknown
from mingora.transport import Transport

BODY = b'{"objects": []}'
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: 12345678\r\n\r\n"
WHOLE = JSON % len(BODY) + BODY
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Log-Next-Offset: 7\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n" + BODY + b"\r\n0\r\n\r\n"
REFUSAL = b"HTTP/1.1 409 CONFLICT\r\nContent-Length: 34\r\n\r\n" + b'{"error": {"code": "lease_lost" }}'


@contextmanager
def answers(each: bytes) -> Iterator[str]:
    """A server that answers any request with these bytes and closes the connection; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(each)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("whole", [WHOLE, CHUNKED], ids=["length", "chunked"])
def test_json_cut_at_any_byte_is_a_lost_answer(whole: bytes) -> None:
    needed = whole.index(BODY) + len(BODY)  # what closes the chunks after it says nothing more
    for end in range(needed):
        with answers(whole[:end]) as url, Transport(url, token=TOKEN) as transport, pytest.raises(LostAnswer):
            taken = transport.request_json("GET", "/account", attempts=1)
            pytest.fail(f"cut after {whole[:end]!r}: taken for {taken}")
    with answers(whole) as url, Transport(url, token=TOKEN) as transport:
        assert transport.request_json("GET", "/account", attempts=1).data == {"objects": []}


@pytest.mark.req("CLI-10")
def test_an_empty_answer_cut_at_any_byte_is_a_lost_answer() -> None:
    for end in range(len(EMPTY)):
        with answers(EMPTY[:end]) as url, Transport(url, token=TOKEN) as transport, pytest.raises(LostAnswer):
            taken = transport.request_bytes("GET", "/jobs/j/logs", attempts=1)
            pytest.fail(f"cut after {EMPTY[:end]!r}: taken for {taken}")
    with answers(EMPTY) as url, Transport(url, token=TOKEN) as transport:
        assert transport.request_bytes("GET", "/jobs/j/logs", attempts=1).headers["x-log-next-offset"] == "7"


@pytest.mark.req("CLI-10")
def test_a_refusal_cut_at_any_byte_leaves_a_write_unknown() -> None:
    for end in range(len(REFUSAL)):
        with answers(REFUSAL[:end]) as url, Transport(url, token=TOKEN) as transport, pytest.raises(OutcomeUnknown):
            transport.request_json("POST", "/jobs", body={}, idempotent=False)


@pytest.mark.req("CLI-10")
def test_a_success_without_the_body_it_needs_is_a_lost_answer() -> None:
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with answers(empty) as url, Transport(url, token=TOKEN) as transport, pytest.raises(LostAnswer):
        transport.request_json("GET", "/account", attempts=1)
