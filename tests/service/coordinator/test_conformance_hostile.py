"""The conformance test against servers that want to harm or hold it: it ends, in bounds, and says what it saw."""

from __future__ import annotations

import argparse
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from service.coordinator.conformance_mutants import served

from mingora_coordinator.conformance import client, command

pytestmark = pytest.mark.req("CONF-1")
Speak = Callable[[socket.socket], None]
STATE = {
    "tur": 0, "toplam_tur": 2, "bekleyen_sonuc": [], "ozet": "00", "isciler": {},
    "trafik": {"indirilen_bayt": 0, "yuklenen_bayt": 0}, "gunluk": [],
}  # fmt: skip


@contextmanager
def listening(speak: Speak) -> Iterator[str]:
    """Accepts connections, reads what a client sends first, and lets ``speak`` answer before it closes."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.05)
    over = threading.Event()

    def one(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            try:
                connection.recv(1 << 16)
                speak(connection)
            except OSError:
                return

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        thread.join()
        server.close()


def ask(url: str, tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    target = tmp_path / "report.json"
    code = command.run(parser.parse_args(["--url", url, "--json", str(target), *words]))
    return code, json.loads(target.read_text()) if target.exists() else {}


def _forever(connection: socket.socket, first: bytes, again: bytes) -> None:
    connection.sendall(first)
    while True:
        connection.sendall(again)


def _dribble(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        threading.Event().wait(0.01)


NO_COORDINATORS: dict[str, Speak] = {
    "hangs up": lambda connection: None,
    "no HTTP": lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "an endless status line": lambda connection: _forever(connection, b"HTTP/1.1 200 ", b"x" * 4096),
    "endless headers": lambda connection: _forever(connection, b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n" * 100),
    "an endless body": lambda connection: _forever(connection, b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "an endless chunked body": lambda connection: _forever(
        connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"
    ),
    "a body that is cut": lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"),
    "a broken length": lambda connection: connection.sendall(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "endless interim answers": _dribble,
}


@pytest.mark.parametrize("speak", NO_COORDINATORS.values(), ids=NO_COORDINATORS.keys())
def test_what_is_no_http_server_cannot_be_asked(
    speak: Speak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "JSON_SECONDS", 1.0)
    with listening(speak) as url:
        assert ask(url, tmp_path) == (2, {})
    assert "/durum: " in capsys.readouterr().err


@pytest.mark.parametrize("dribbled", [b"", b"\x16\x03\x03\x40\x00" + bytes(1 << 14)], ids=["silence", "a dribble"])
def test_a_handshake_without_an_end_is_bounded(
    dribbled: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "JSON_SECONDS", 0.3)
    left = threading.Event()

    def speak(connection: socket.socket) -> None:
        try:
            for byte in dribbled:
                connection.sendall(bytes([byte]))
                threading.Event().wait(0.01)
            connection.settimeout(client.SILENCE - 10)
            if connection.recv(1 << 16) == b"":
                left.set()
        except ConnectionError:
            left.set()

    with listening(speak) as url:
        assert ask(url.replace("http:", "https:"), tmp_path) == (2, {})
        assert left.wait(client.SILENCE)
    assert "/durum: " in capsys.readouterr().err


def _says(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> Speak:
    answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers) + body
    return lambda connection: connection.sendall(answer)


ODD = {
    "nothing": b"",
    "null": b"null",
    "deep": b"[" * 400_000,
    "deep and closed": b"[" * 500 + b"]" * 500,
    "a number of 5000 digits": b'{"tur": ' + b"9" * 5000 + b"}",
    "a number of 4000 digits": b'{"tur": ' + b"9" * 4000 + b', "toplam_tur": 1e999}',
    "NaN": b'{"tur": NaN}',
    "half a character": b'{"tur": "\\ud800", "bitti": "\\ud800", "protokol": "\\ud800", "isciler": {"\\ud800": 1}}',
    "a terminal's commands": b'{"protokol": "\x1b]0;owned\x07", "hata": "\\u001b[2J\\u202e"}',
    "other types": json.dumps({name: [{}] for name in (*STATE, "protokol", "parca", "n_parca", "bitti")}).encode(),
    "a state everywhere": json.dumps(STATE).encode(),
    "utf-16": json.dumps(STATE).encode("utf-16"),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("status", [b"200 OK", b"500 \x1b[31mno"], ids=["200", "500"])
def test_odd_answers_are_reported(
    body: bytes, status: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(_says(body, status)) as url:
        code, report = ask(url, tmp_path, "--full")
    assert code == 1
    assert report["conformant"] is False
    printed = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert max(map(len, printed.splitlines())) < 600


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    asked = []
    with listening(lambda connection: asked.append(1)) as elsewhere:
        location = f"Location: {elsewhere}/\r\n".encode()
        with listening(_says(b"", b"302 Found", location)) as url:
            code, report = ask(url, tmp_path)
    assert (code, asked) == (1, [])
    assert any(check["seen"].startswith("302") for check in report["checks"])


def test_weights_without_an_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WEIGHTS_BYTES", 1 << 20)

    def endless(module: Any) -> None:
        get = module.Istek.do_GET

        def do_get(self: Any) -> None:
            if self.path != "/agirlik":
                get(self)
                return
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                return

        module.Istek.do_GET = do_get

    with served(endless) as url:
        code, report = ask(url, tmp_path)
    assert code == 1
    found = {check["id"]: check for check in report["checks"]}
    assert found["agirlik.answer"]["outcome"] == "failed"
    assert "more than 1048576 bytes" in found["agirlik.answer"]["seen"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1", ()),
        ("127.0.0.1:8750", ()),
        ("http://", ()),
        ("http://[::1", ()),
        ("http://127.0.0.1:99999", ()),
        ("http://ali:gizli@127.0.0.1", ()),
        ("http://127.0.0.1/?anahtar=gizli", ()),
        ("http://koordinator.invalid", ("--key", "gizli")),
        ("http://127.0.0.1", ("--key", "")),
        ("http://127.0.0.1", ("--key", "a\r\nb")),
    ],
)
@pytest.mark.req("COORD-4")
def test_addresses_that_are_not_asked(
    url: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(url, tmp_path, *words) == (2, {})
    assert capsys.readouterr().out == ""


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}", tmp_path) == (2, {})


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with served() as url:
        assert command.run(parser.parse_args(["--url", url, "--json", str(tmp_path / "no" / "report.json")])) == 2
    assert "No such file" in capsys.readouterr().err
