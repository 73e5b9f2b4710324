"""Where a service listens, and what its health check says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mingora_common import probe
from mingora_common.config import ConfigError
from mingora_common.serving import Address


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [(None, "127.0.0.1", 8000), ("0.0.0.0:80", "0.0.0.0", 80), ("[::1]:8000", "::1", 8000)],
)
def test_an_address_is_a_host_and_a_port(text: str | None, host: str, port: int) -> None:
    address = Address.from_env({} if text is None else {"MINGORA_LISTEN": text})
    assert (address.host, address.port) == (host, port)


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("text", ["8000", ":8000", "host:", "host:x", "host:65536", "host:-1", "host:٣"])
def test_any_other_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="MINGORA_LISTEN"):
        Address.from_env({"MINGORA_LISTEN": text})


@pytest.mark.req("OPS-1")
def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} .* in use"):
            Address("127.0.0.1", port).bind()


class _Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.req("OPS-1", "OPS-3")
def test_a_probe_tells_ready_from_not_ready_and_from_nobody(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([str(port)]) == 0
    assert probe.main([str(port), "/other"]) == 1
    assert "503" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    assert probe.main([str(free)]) == 1
