"""The minimal coordinator as a real process: a whole cycle, the order of its checks, and every damaged body."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from coordinator_bodies import accepted, refused
from safetensors.numpy import load, save
from service.coordinator.minimal_process import EXAMPLE, PATIENCE, Minimal, adapter

pytestmark = pytest.mark.req("MINI-1")


@pytest.fixture
def minimal(tmp_path: Path) -> Iterator[Minimal]:
    with Minimal(tmp_path) as running:
        yield running


@pytest.mark.req("COORD-1", "COORD-2", "COORD-3")
def test_rounds_close_with_the_mean_until_the_end(minimal: Minimal) -> None:
    generator = np.random.default_rng(7)
    for number in range(3):
        results = {}
        for name in ("ali", "veli"):
            task = minimal.told("/gorev", isci=name)
            status, headers, body = minimal.get("/agirlik")
            assert (status, headers["X-Tur"], headers["X-Sha256"]) == (200, str(number), task["agirlik_sha256"])
            assert headers["Content-Type"] == "application/octet-stream"
            assert hashlib.sha256(body).hexdigest() == task["agirlik_sha256"]
            assert (task["tur"], task["toplam_tur"], task["n_parca"]) == (number, 3, 2)
            assert minimal.told("/gorev", isci=name) == task
            results[name] = {
                key: (values + generator.normal(size=values.shape)).astype(np.float32)
                for key, values in load(body).items()
            }
        assert minimal.post(save(results["ali"]), isci="ali", tur=number) == (200, {"tamam": True, "tur": number})
        assert minimal.told("/gorev", isci="ali") == {"bekle": True, "tur": number}
        assert minimal.told("/durum")["bekleyen_sonuc"] == ["ali"]
        assert minimal.post(save(results["veli"]), isci="veli", tur=number) == (200, {"tamam": True, "tur": number})
        published = load(minimal.get("/agirlik")[2])
        for key, values in published.items():
            mean = (results["ali"][key].astype(np.float64) + results["veli"][key]) / 2
            np.testing.assert_array_equal(values, mean.astype(np.float32))
    assert minimal.told("/gorev", isci="ali") == {"bitti": True}
    assert minimal.post(save(adapter()), isci="ali", tur=3)[0] == 409
    state = minimal.told("/durum")
    assert (state["tur"], len(state["gunluk"]), state["bekleyen_sonuc"]) == (3, 3, [])
    assert state["trafik"]["yuklenen_bayt"] == 6 * len(save(adapter()))
    assert minimal.told("/bilgi")["protokol"] == "1"


@pytest.mark.req("COORD-1", "COORD-2")
def test_workers_of_a_round_have_different_slices(minimal: Minimal) -> None:
    assert sorted(minimal.told("/gorev", isci=name)["parca"] for name in ("ali", "veli")) == [0, 1]
    assert set(minimal.told("/durum")["isciler"]) == {"ali", "veli"}


@pytest.mark.req("COORD-1")
def test_every_refused_body_gets_its_status_and_changes_nothing(tmp_path: Path) -> None:
    with Minimal(tmp_path, results=100) as minimal:
        before = minimal.told("/bilgi")["agirlik_sha256"]
        wrong = {}
        for name, body, expected in refused(adapter()):
            status, answer = minimal.post(body, isci="mallory", tur=0)
            if status != expected or set(answer) != {"hata"}:
                wrong[name] = (status, answer)
        assert wrong == {}
        assert minimal.told("/durum")["bekleyen_sonuc"] == []
        assert minimal.told("/bilgi")["agirlik_sha256"] == before


@pytest.mark.req("COORD-1")
def test_every_odd_body_that_is_fine_is_taken(tmp_path: Path) -> None:
    with Minimal(tmp_path, results=100) as minimal:
        for number, (name, body) in enumerate(accepted(adapter())):
            assert minimal.post(body, isci=f"ali{number}", tur=0)[0] == 200, name


@pytest.mark.req("COORD-1")
def test_the_checks_have_their_order(minimal: Minimal) -> None:
    good, bad = save(adapter()), save({"x": np.zeros(1, np.float32)})
    cases: list[tuple[bytes, dict[str, object], int]] = [
        (b"", {}, 413),
        (b"garbage", {"isci": "ali", "tur": 9}, 400),
        (good, {"tur": 0}, 400),
        (good, {"isci": "ali"}, 400),
        (good, {"isci": "ali", "tur": "-1"}, 400),
        (good, {"isci": "ali", "tur": "0x0"}, 400),
        (good, {"isci": "a" * 300, "tur": 0}, 400),
        (bad, {"isci": "ali", "tur": 9}, 409),
        (bad, {"isci": "ali", "tur": 0}, 422),
        (good, {"isci": "ali", "tur": 0}, 200),
        (bad, {"isci": "ali", "tur": 0}, 409),
    ]
    for body, parameters, expected in cases:
        assert minimal.post(body, **parameters)[0] == expected, parameters
    assert minimal.get("/gorev")[0] == 400
    assert minimal.get("/yok")[0] == 404


@pytest.mark.req("COORD-1")
def test_a_body_that_is_too_large_is_refused_on_its_header_and_the_answer_arrives(minimal: Minimal) -> None:
    connection = minimal.connect()
    connection.putrequest("POST", "/sonuc?isci=ali&tur=0")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders(bytes(1 << 20))
    answer = connection.getresponse()
    assert answer.status == 413
    assert set(json.loads(answer.read())) == {"hata"}
    connection.close()


@pytest.mark.parametrize(
    "header", [("Transfer-Encoding", "chunked"), ("Content-Length", "-1"), ("Content-Length", "1e3")]
)
def test_a_body_of_unknown_length_is_refused_and_ends_the_connection(header: tuple[str, str], minimal: Minimal) -> None:
    connection = minimal.connect()
    connection.putrequest("POST", "/sonuc?isci=ali&tur=0")
    connection.putheader(*header)
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (400, "close")
    connection.close()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "FOO", "HEAD"])
@pytest.mark.parametrize("body", [None, bytes(1 << 20)], ids=["no body", "a body"])
def test_other_methods_are_told_so(method: str, body: bytes | None, minimal: Minimal) -> None:
    connection = minimal.connect()
    connection.request(method, "/sonuc?isci=ali&tur=0", body)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Allow"], answer.headers["Connection"]) == (405, "GET, POST", "close")
    assert answer.headers["Content-Type"].startswith("application/json")
    told = answer.read()
    assert told == b"" if method == "HEAD" else set(json.loads(told)) == {"hata"}
    connection.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"GET /durum HTTP/9.9\r\n", 505), (b"GET /a b HTTP/1.1\r\n", 400), (b"GET /" + b"a" * 70_000, 414)],
    ids=["version", "words", "long"],
)
def test_a_request_that_cannot_be_read_is_told_so_in_json(line: bytes, status: int, minimal: Minimal) -> None:
    address = urlsplit(minimal.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE) as connection:
        connection.sendall(line + b"\r\n")
        answer = connection.makefile("rb").read()
    assert json.loads(answer.splitlines()[-1]).keys() == {"hata"}
    assert answer.startswith((b"{", b"HTTP/1.1 %d " % status))


@pytest.mark.req("COORD-2")
def test_as_many_results_as_close_a_round_are_taken_of_many_at_once(tmp_path: Path) -> None:
    with Minimal(tmp_path, rounds=1, results=3) as minimal, ThreadPoolExecutor(8) as pool:
        body = save(adapter())
        answers = pool.map(lambda number: minimal.post(body, isci=f"ali{number}", tur=0)[0], range(8))
        assert sorted(answers) == [200] * 3 + [409] * 5
        assert load(minimal.get("/agirlik")[2]).keys() == adapter().keys()


def test_it_stays_small() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 280
