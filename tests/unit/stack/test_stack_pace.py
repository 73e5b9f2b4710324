"""A request has to arrive at a least pace."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from mingora_common import pace
from mingora_common.pace import PacedConnection


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PacedConnection, socket.socket]]:
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with PacedConnection(ours) as paced, theirs:
        yield paced, theirs


def _dribble(client: socket.socket, count: int) -> threading.Thread:
    def send() -> None:
        for _ in range(count):
            time.sleep(0.02)
            client.send(b"x")

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.req("OPS-2")
def test_who_dribbles_is_let_go(connection: tuple[PacedConnection, socket.socket]) -> None:
    ours, theirs = connection
    sender = _dribble(theirs, 30)
    with pytest.raises(TimeoutError):
        for _ in range(30):
            assert ours.recv(1000) == b"x"
    sender.join()


@pytest.mark.req("OPS-2")
def test_each_request_has_its_own_time_and_the_services_own_doesnt_count(
    connection: tuple[PacedConnection, socket.socket],
) -> None:
    ours, theirs = connection
    for _ in range(3):
        ours.begin_request()
        sender = _dribble(theirs, 5)
        for _ in range(5):
            assert ours.recv(1000) == b"x"
        sender.join()
        time.sleep(0.3)
    theirs.send(b"x")
    assert ours.recv(1000) == b"x"
    assert ours.fileno() > 0


@pytest.mark.req("OPS-2", "REST-2")
def test_what_is_only_drained_has_less_time_whatever_its_pace(
    connection: tuple[PacedConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 30.0)
    ours, theirs = connection
    ours.begin_request()
    ours.hurry(0.2)
    sender = _dribble(theirs, 30)
    with pytest.raises(TimeoutError):
        for _ in range(30):
            assert ours.recv(1000) == b"x"
    sender.join()
    ours.begin_request()
    assert ours.recv(1000)
