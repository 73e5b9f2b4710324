"""TLS as the server speaks it: stalling clients are let go, a renewed certificate is taken up while it runs."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mingora_common import tls
from mingora_stack.tls import Authority


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setattr(tls, "STALL_SECONDS", 0.3)
    authority = Authority(tmp_path)
    authority.certify("localhost")
    return authority


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def accepted(authority: Authority, connection: socket.socket) -> ssl.SSLSocket:
    """What gunicorn makes of an accepted connection."""
    context = tls._context_of(str(authority.server_file), None, authority.server_file.stat().st_mtime_ns)
    return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


@pytest.mark.req("OPS-2")
def test_a_silent_client_doesnt_keep_the_handshake_open(
    authority: Authority, pair: tuple[socket.socket, socket.socket]
) -> None:
    with accepted(authority, pair[0]) as connection, pytest.raises(TimeoutError):
        connection.do_handshake()


@pytest.mark.req("OPS-2")
def test_a_client_that_stalls_after_the_handshake_is_let_go(
    authority: Authority, pair: tuple[socket.socket, socket.socket]
) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.certificate_file))
    clients: list[ssl.SSLSocket] = []
    client = threading.Thread(target=lambda: clients.append(trusting.wrap_socket(pair[1], server_hostname="localhost")))
    client.start()
    with accepted(authority, pair[0]) as connection:
        connection.do_handshake()
        client.join(5)
        with clients[0]:
            connection.setblocking(True)
            with pytest.raises(TimeoutError):
                connection.recv(1)


@pytest.mark.req("AUTH-5")
def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    context = tls._context_of(str(authority.server_file), None, 0)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.req("OPS-2")
def test_a_renewed_certificate_is_served_without_a_restart(authority: Authority) -> None:
    config = SimpleNamespace(certfile=str(authority.server_file), keyfile=None)
    before = tls.context(config, ssl.create_default_context)
    assert tls.context(config, ssl.create_default_context) is before
    authority.certify("another.name")
    os.utime(authority.server_file, ns=(1, 1))  # file systems with coarse times would hide a change this quick
    assert tls.context(config, ssl.create_default_context) is not before
