"""A coordinator as a process: bodies that are cut, endless or too large, agreement under load, TLS, a clean stop."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from coordinator_support import PATIENCE, Served, adapter, moved, wait_for
from safetensors.numpy import load, save

from mingora_stack.tls import Authority

KEY = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One with a key, and an adapter of 8 MB: what is refused doesn't fit into socket buffers."""
    large = save({"a": np.zeros((2000, 1000), np.float32)})
    with Served(tmp_path_factory.mktemp("wire"), "--anahtar", KEY, initial=large) as served:
        yield served


def connected(served: Served) -> socket.socket:
    address = urlsplit(served.url)
    return socket.create_connection((str(address.hostname), address.port), timeout=PATIENCE)


def status_of(connection: socket.socket) -> int:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    body = answer.read()
    if answer.status >= 400:
        assert set(json.loads(body)) == {"hata"}
    return answer.status


def send_all(connection: socket.socket, head: str, size: int, key: str | None = KEY) -> int:
    """Send a head and ``size`` bytes, all of them, before looking at the answer, as simple clients do."""
    shown = "" if key is None else f"X-Anahtar: {key}\r\n"
    connection.sendall(f"POST /sonuc?isci=a&tur=0 HTTP/1.1\r\nHost: x\r\n{shown}{head}\r\n".encode())
    piece = b"\0" * 65536
    while size > 0:
        connection.sendall(piece[:size])
        size -= len(piece)
    return status_of(connection)


@pytest.mark.req("COORD-1", "COORD-4")
@pytest.mark.parametrize("size", [8_000_500, 20_000_000, 40_000_000])
def test_who_sends_without_a_key_reads_the_401(served: Served, size: int) -> None:
    with connected(served) as connection:
        assert send_all(connection, f"Content-Length: {size}\r\n", size, key=None) == 401


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize("size", [17_000_000, 40_000_000])
def test_who_sends_too_much_reads_the_413(served: Served, size: int) -> None:
    with connected(served) as connection:
        assert send_all(connection, f"Content-Length: {size}\r\n", size) == 413


@pytest.mark.req("COORD-1")
def test_what_is_far_too_much_is_refused_by_its_headers(served: Served) -> None:
    with connected(served) as connection:
        assert send_all(connection, "Content-Length: 1000000000000\r\n", 0) == 413


def chunks(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    yield b"0\r\n\r\n"


CHUNKED = (
    f"POST /sonuc?isci=c&tur=0 HTTP/1.1\r\nHost: x\r\nX-Anahtar: {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
)


@pytest.mark.req("COORD-1")
def test_chunked_bodies_stop_at_the_limit(served: Served) -> None:
    with connected(served) as connection:
        connection.sendall(CHUNKED)
        for chunk in chunks(b"\0" * 25_000_000):
            connection.sendall(chunk)
        assert status_of(connection) == 413
    with connected(served) as connection:
        connection.sendall(CHUNKED + b"0\r\n\r\n")
        assert status_of(connection) == 413  # empty
    with connected(served) as connection:
        connection.sendall(CHUNKED + b"5\r\nabcde\r\nzz\r\n")
        assert status_of(connection) in (400, 413)  # what came before a broken chunk may be lost with it


@pytest.mark.req("COORD-1")
def test_a_chunked_result_is_a_result(served: Served) -> None:
    key = {"X-Anahtar": KEY}
    start = load(served.request("GET", "/agirlik", headers=key)[2])
    with connected(served) as connection:
        connection.sendall(CHUNKED)
        for chunk in chunks(save(moved(start, 0.1))):
            connection.sendall(chunk)
        assert status_of(connection) == 200


@pytest.mark.req("COORD-1", "COORD-6")
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_body_that_breaks_off_is_no_result(served: Served, share: float) -> None:
    body = save({"a": np.zeros((2000, 1000), np.float32)})
    before = len(served.request("GET", "/durum", headers={"X-Anahtar": KEY})[2])
    with connected(served) as connection:
        head = (
            f"POST /sonuc?isci=b&tur=0 HTTP/1.1\r\nHost: x\r\nX-Anahtar: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body[: int(len(body) * share)])
        connection.shutdown(socket.SHUT_WR)
        assert status_of(connection) in (400, 413)
    assert before  # it goes on answering
    pending = json.loads(served.request("GET", "/durum", headers={"X-Anahtar": KEY})[2])["bekleyen_sonuc"]
    assert "b" not in pending
    wait_for(lambda: list((served.data / "incoming").iterdir()) == [])


@pytest.mark.req("COORD-1", "COORD-2")
def test_task_and_adapter_agree_while_rounds_close(tmp_path: Path) -> None:
    """Readers ask all the time; whenever two answers are of the same round, they are of the same adapter."""
    rounds = 40
    digests: dict[int, set[str]] = {number: set() for number in range(rounds + 1)}
    wrong: list[object] = []
    stop = threading.Event()

    def read(served: Served, name: str) -> None:
        while not stop.is_set():
            task = served.get("/gorev", isci=name)
            _status, headers, body = served.request("GET", "/agirlik")
            digest = hashlib.sha256(body).hexdigest()
            digests[int(headers["X-Tur"])].add(digest)
            if "agirlik_sha256" in task:
                digests[task["tur"]].add(task["agirlik_sha256"])
                if int(headers["X-Tur"]) < task["tur"]:
                    wrong.append((task, dict(headers)))
            if digest != headers["X-Sha256"] or headers["ETag"] != f'"{digest}"':
                wrong.append(dict(headers))

    with Served(tmp_path, rounds=rounds, results=3) as served:
        readers = [threading.Thread(target=read, args=(served, f"r{n}"), daemon=True) for n in range(4)]
        for reader in readers:
            reader.start()
        for number in range(rounds):
            start = load(served.request("GET", "/agirlik")[2])
            for place, worker in enumerate("xyz"):
                assert served.send(worker, number, moved(start, 0.01 * (place + 1))) == 200
        stop.set()
        for reader in readers:
            reader.join(PATIENCE)
        assert served.get("/gorev", isci="x") == {"bitti": True}
    assert wrong == []
    assert all(len(found) <= 1 for found in digests.values())


@pytest.mark.req("COORD-2")
def test_of_racing_results_of_one_worker_one_counts(tmp_path: Path) -> None:
    with Served(tmp_path, results=9) as served:
        statuses: list[int] = []
        senders = [threading.Thread(target=lambda: statuses.append(served.send("a", 0, adapter()))) for _ in range(20)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(PATIENCE)
        assert sorted(statuses) == [200] + [409] * 19
        assert served.get("/durum")["bekleyen_sonuc"] == ["a"]


@pytest.mark.req("COORD-2", "COORD-3")
def test_a_round_takes_no_more_than_it_needs(tmp_path: Path) -> None:
    with Served(tmp_path, "--outer", "mean", results=3) as served:
        statuses: dict[str, int] = {}

        def send(name: str) -> None:
            statuses[name] = served.send(name, 0, adapter())

        senders = [threading.Thread(target=send, args=(f"w{n}",)) for n in range(12)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(PATIENCE)
        assert sorted(statuses.values()) == [200] * 3 + [409] * 9
        wait_for(lambda: served.get("/durum")["tur"] == 1)
        (closed,) = served.get("/durum")["gunluk"]
        assert sorted(closed["sonuclar"]) == sorted(name for name, status in statuses.items() if status == 200)


@pytest.mark.req("COORD-4")
def test_tls_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    authority.certify("localhost")
    words = ["--tls-cert", str(authority.server_file), "--host", "localhost"]
    certificate = authority.certificate_file
    served = Served.__new__(Served)
    context = ssl.create_default_context(cafile=str(certificate))

    def request(method: str, path: str, *_more: object, **_parameters: object) -> tuple[int, dict[str, str], bytes]:
        address = urlsplit(served.url)
        connection = http.client.HTTPSConnection("localhost", address.port, timeout=PATIENCE, context=context)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    served.request = request  # type: ignore[method-assign]
    served.__init__(tmp_path, *words)  # type: ignore[misc]
    with served:
        assert served.url.startswith("https://")
        assert served.get("/bilgi")["protokol"] == "1"
        assert served.request("GET", "/agirlik")[2] == save(adapter())


@pytest.mark.req("COORD-6")
def test_a_stop_in_the_middle_of_everything_is_clean(tmp_path: Path) -> None:
    chance = random.Random(1)
    with Served(tmp_path, rounds=10_000, results=2) as served:
        stop = threading.Event()

        def work(name: str) -> None:
            while not stop.is_set():
                try:
                    task = served.get("/gorev", isci=name)
                    if "lr" in task:
                        served.send(name, task["tur"], adapter())
                except (OSError, http.client.HTTPException):
                    time.sleep(0.01)

        workers = [threading.Thread(target=work, args=(name,), daemon=True) for name in "ab"]
        for worker in workers:
            worker.start()
        for _ in range(3):
            time.sleep(chance.uniform(0.1, 0.6))
            assert served.stop() == 0
            served.start()
        stop.set()
        for worker in workers:
            worker.join(PATIENCE)
        assert served.get("/durum")["tur"] > 0


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /gorev?isci=" + "x" * 9000 + " HTTP/1.1\r\n", 414),
        ("GET /gorev?isci=a HTTP/1.1\r\nX-A: " + "x" * 9000 + "\r\n", 431),
        ("POST /sonuc?isci=a&tur=0 HTTP/1.1\r\nContent-Length: +3\r\n", 400),
        ("POST /sonuc?isci=a&tur=0 HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n", 400),
        ("GET  /bilgi HTTP/1.1\r\n", 400),
        ("GET /bilgi HTTP/9\r\n", 400),
    ],
)
def test_what_cant_be_read_as_a_request_is_told_as_everything_is(served: Served, head: str, status: int) -> None:
    with connected(served) as connection:
        connection.sendall(f"{head}Host: x\r\n\r\n".encode())
        assert status_of(connection) == status


@pytest.mark.req("COORD-6")
def test_signals_that_would_start_a_second_worker_dont(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2):
            served.process.send_signal(number)
        time.sleep(0.5)
        assert served.send("a", 0, adapter()) == 200
        served.process.send_signal(signal.SIGHUP)  # its terminal was closed
        assert served.process.wait(PATIENCE) == 0
        served.stop()
        served.start()
        assert served.get("/durum")["bekleyen_sonuc"] == ["a"]


@pytest.mark.req("COORD-6")
def test_after_the_master_was_killed_alone_it_starts_again(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        assert served.send("a", 0, adapter()) == 200
        served.process.kill()  # the worker notices, and holds the folder until then
        served.process.wait(PATIENCE)
        served.stop()
        served.start()
        assert served.get("/durum")["bekleyen_sonuc"] == ["a"]
