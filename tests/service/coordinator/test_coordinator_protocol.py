"""The protocol's routes, to the letter of its page."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_bodies import accepted, refused
from coordinator_support import Adapter, Local, adapter, mean_of, moved
from safetensors.numpy import load, save
from service.coordinator.conftest import Start

REFUSED, ACCEPTED = refused(adapter()), accepted(adapter())
TASK = {"tur", "toplam_tur", "parca", "n_parca", "ic_adim", "bs", "seq", "lr", "tohum", "agirlik_sha256"}


@pytest.mark.req("COORD-1")
def test_bilgi_tells_what_the_protocol_shows(start: Start) -> None:
    info = start(rounds=20).get("/bilgi")
    assert list(info) == [
        *("protokol", "uygulama", "surum", "tur", "toplam_tur", "taban_model", "adaptor"),
        *("agirlik_boyutu", "agirlik_sha256", "anahtar_gerekli"),
    ]
    assert (info["protokol"], info["tur"], info["toplam_tur"], info["taban_model"]) == ("1", 0, 20, "org/base")
    assert info["adaptor"] == {
        "yontem": "lora",
        "r": 3,
        "alfa": 6,
        "hedef_moduller": ["q_proj"],
        "dtype": "float32",
        "tensor_sayisi": 3,
    }
    file = save(adapter())
    assert (info["agirlik_boyutu"], info["agirlik_sha256"]) == (len(file), hashlib.sha256(file).hexdigest())
    assert info["anahtar_gerekli"] is False


@pytest.mark.req("COORD-1")
def test_a_whole_training(start: Start) -> None:
    coordinator = start(rounds=2, min_results=2, outer="mean", seed=9, shards=5)
    for number in range(2):
        tur, digest, globe = coordinator.weights()
        assert tur == number
        results = []
        for place, worker in enumerate(("ali", "veli")):
            task = coordinator.get(f"/gorev?isci={worker}")
            assert task.keys() == TASK
            assert (task["tur"], task["toplam_tur"], task["parca"], task["n_parca"]) == (number, 2, place, 5)
            assert (task["ic_adim"], task["bs"], task["seq"], task["lr"], task["tohum"]) == (20, 4, 512, 2e-4, 9)
            assert task["agirlik_sha256"] == digest
            results.append(moved(globe, 0.25 * (place + 1)))
            assert coordinator.send(worker, number, results[-1]) == (200, {"tamam": True, "tur": number})
            if place == 0:
                assert coordinator.get("/gorev?isci=ali") == {"bekle": True, "tur": number}
                assert coordinator.get("/durum")["bekleyen_sonuc"] == ["ali"]
        made = coordinator.weights()[2]
        for name, array in mean_of(results).items():
            assert made[name].tobytes() == array.tobytes()
    assert coordinator.get("/gorev?isci=ali") == {"bitti": True}
    assert coordinator.get("/bilgi")["tur"] == 2
    assert coordinator.send("ali", 2, adapter()) == (409, {"hata": "eğitim bitti"})
    log = coordinator.get("/durum")["gunluk"]
    assert [(entry["tur"], entry["sonuclar"]) for entry in log] == [(0, log[0]["sonuclar"]), (1, log[1]["sonuclar"])]
    assert sorted(log[0]["sonuclar"]) == ["ali", "veli"]


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize(("name", "body", "status"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_malformed_bodies(start: Start, name: str, body: bytes, status: int) -> None:
    coordinator = start(rounds=2, min_results=1)
    before = coordinator.weights()[1]
    began = time.thread_time()
    found, answer = coordinator.send("ali", 0, body)
    # Of this thread's own time, which other load doesn't lengthen; the bound with room for a slower machine.
    assert time.thread_time() - began < 0.5
    assert found == status and set(answer) == {"hata"}
    assert coordinator.weights()[1] == before
    assert coordinator.get("/durum")["bekleyen_sonuc"] == []
    assert list(coordinator.folder.incoming.iterdir()) == []


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize(("name", "body"), ACCEPTED, ids=[name for name, _ in ACCEPTED])
def test_odd_bodies_that_are_results(start: Start, name: str, body: bytes) -> None:
    coordinator = start(rounds=2, min_results=1, outer="mean")
    assert coordinator.send("ali", 0, body)[0] == 200
    _number, _digest, made = coordinator.weights()
    raw = coordinator.client.get("/agirlik").data
    assert b"__metadata__" not in raw
    sent = load(body)
    for key, array in sent.items():
        assert np.array_equal(made[key], array)


@pytest.mark.req("COORD-1")
def test_checks_come_in_order(start: Start) -> None:
    coordinator = start(rounds=2, min_results=3)
    post = coordinator.client.post
    cap = coordinator.training.layout.body_cap
    good, wrong = save(adapter()), save(moved(adapter(), float("nan")))
    # 413 before 400: nothing is known yet of who sends what.
    assert post("/sonuc", data=b"").status_code == 413
    assert post("/sonuc?isci=ali&tur=x", data=b"x" * (cap + 1)).status_code == 413
    # 400 before 409
    assert post("/sonuc?tur=0", data=good).status_code == 400
    assert post("/sonuc?isci=ali", data=good).status_code == 400
    assert post("/sonuc?isci=ali&tur=9", data=b"\x80\x04pickle").status_code == 400
    # 409 before 422
    assert coordinator.send("ali", 1, wrong) == (409, {"hata": "tur uyuşmuyor"})
    assert coordinator.send("ali", 0, good)[0] == 200
    assert coordinator.send("ali", 0, wrong) == (409, {"hata": "bu tur için sonucunuz zaten var"})
    status, answer = coordinator.send("veli", 0, wrong)
    assert status == 422 and answer["hata"].startswith("sonlu olmayan değer: ")


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize("number", ["", "--1", "1.0", "x", "٣", "1" * 101, " 0", "0x0", "1e0"])
def test_a_round_that_is_no_number(start: Start, number: str) -> None:
    answer = start().client.post("/sonuc", query_string={"isci": "ali", "tur": number}, data=save(adapter()))
    assert answer.status_code == 400 and set(answer.get_json()) == {"hata"}


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize("number", ["-1", "1", "99999999999", "1" * 100])
def test_a_round_that_isnt_open(start: Start, number: str) -> None:
    answer = start().client.post("/sonuc", query_string={"isci": "ali", "tur": number}, data=save(adapter()))
    assert (answer.status_code, answer.get_json()) == (409, {"hata": "tur uyuşmuyor"})


@pytest.mark.req("COORD-1")
def test_a_method_that_isnt_allowed_names_those_that_are(start: Start) -> None:
    assert start().client.put("/sonuc").headers["Allow"] == "POST"


@pytest.mark.req("COORD-1", "COORD-2")
@pytest.mark.parametrize("name", ["", "   ", "a\nb", "a\x00b", "x" * 201])
def test_names_that_are_none(start: Start, name: str) -> None:
    coordinator = start()
    assert coordinator.client.get("/gorev", query_string={"isci": name}).status_code == 400
    sent = coordinator.client.post("/sonuc", query_string={"isci": name, "tur": 0}, data=save(adapter()))
    assert sent.status_code == 400


@pytest.mark.req("COORD-2")
@pytest.mark.parametrize("name", ["x" * 200, "ışık ğüç", "../../etc", "a/b?c&d", "名前", "💡", "a'\"<b>"])
def test_names_that_are_some(start: Start, name: str) -> None:
    coordinator = start(min_results=1)
    assert coordinator.client.get("/gorev", query_string={"isci": name}).get_json()["tur"] == 0
    assert coordinator.send(name, 0, adapter())[0] == 200
    assert coordinator.get("/durum")["gunluk"][0]["sonuclar"] == [name]


@pytest.mark.req("COORD-1")
def test_other_paths_and_methods_speak_json(start: Start) -> None:
    client = start().client
    for method, path, status in (
        ("GET", "/yok", 404), ("POST", "/gorev", 405), ("GET", "/sonuc", 405), ("OPTIONS", "/agirlik", 405),
        ("GET", "/soru", 405), ("DELETE", "/agirlik", 405),
    ):  # fmt: skip
        answer = client.open(path, method=method)
        assert answer.status_code == status
        assert set(answer.get_json()) == {"hata"}


@pytest.mark.req("COORD-1")
def test_ranges_of_the_adapter(start: Start) -> None:
    client = start().client
    whole = client.get("/agirlik")
    etag, size = whole.headers["ETag"], len(whole.data)
    assert etag == f'"{hashlib.sha256(whole.data).hexdigest()}"'
    part = client.get("/agirlik", headers={"Range": "bytes=10-19", "If-Range": etag})
    assert (part.status_code, part.data, part.headers["Content-Range"]) == (
        206,
        whole.data[10:20],
        f"bytes 10-19/{size}",
    )
    assert part.headers["X-Sha256"] == whole.headers["X-Sha256"]
    changed = client.get("/agirlik", headers={"Range": "bytes=10-19", "If-Range": '"other"'})
    assert (changed.status_code, changed.data) == (200, whole.data)
    beyond = client.get("/agirlik", headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{size}")
    assert client.get("/agirlik", headers={"If-None-Match": etag}).status_code == 304
    head = client.head("/agirlik")
    assert (head.headers["Content-Length"], head.data) == (str(size), b"")


@pytest.mark.req("COORD-1")
def test_traffic_and_last_contacts(start: Start) -> None:
    coordinator = start(min_results=2)
    size = len(coordinator.client.get("/agirlik").data)
    assert coordinator.client.get("/agirlik", headers={"Range": "bytes=0-9"}).data
    coordinator.get("/gorev?isci=veli")
    assert coordinator.send("ali", 0, adapter())[0] == 200
    state = coordinator.get("/durum")
    assert state["trafik"] == {"indirilen_bayt": size + 10, "yuklenen_bayt": len(save(adapter()))}
    assert set(state["isciler"]) == {"ali", "veli"}
    assert all(0 <= seconds < 60 for seconds in state["isciler"].values())
    assert state["ozet"] == coordinator.get("/bilgi")["agirlik_sha256"][:16]


@pytest.mark.req("COORD-3")
def test_a_round_closes_at_its_time_limit_with_what_there_is(start: Start) -> None:
    coordinator = start(min_results=5, timeout=0.3, outer="mean")
    time.sleep(0.4)
    assert coordinator.get("/bilgi")["tur"] == 0  # nothing came
    sent = moved(adapter(), 1)
    assert coordinator.send("ali", 0, sent)[0] == 200
    _until_round(coordinator, 1)
    assert np.array_equal(coordinator.weights()[2]["scale"], sent["scale"])
    assert coordinator.send("veli", 0, adapter()) == (409, {"hata": "tur uyuşmuyor"})
    assert coordinator.get("/durum")["gunluk"][0]["neden"] == "zaman aşımı"


@pytest.mark.req("COORD-2")
def test_a_worker_keeps_its_slice_and_one_that_vanished_frees_it(start: Start) -> None:
    coordinator = start(rounds=3, min_results=1, shards=2)
    assert [coordinator.get(f"/gorev?isci={name}")["parca"] for name in ("a", "b", "a", "b", "b")] == [0, 1, 0, 1, 1]
    assert coordinator.send("b", 0, adapter())[0] == 200
    assert coordinator.get("/gorev?isci=b")["parca"] == 0  # a hasn't come back


@pytest.mark.req("COORD-3")
@pytest.mark.parametrize("outer", ["nesterov", "mean", "median", "trimmed-mean", "krum", "multi-krum", "norm-clip"])
@pytest.mark.parametrize("far", [1e20, 3.0])  # beyond the sum's grid, and in the sum before it is known for one
def test_an_outlier_leaves_no_trace(tmp_path: Path, outer: str, far: float) -> None:
    honest = {f"h{place}": moved(adapter(), 0.01 * place) for place in range(1, 5)}
    digests = set()
    for case, workers in enumerate(
        (["h1", "h2", "h3", "h4"], ["x", "h4", "h1", "h3", "h2"], ["h2", "x", "h3", "h4", "h1"])
    ):
        folder = tmp_path / str(case)
        folder.mkdir()
        with Local(folder, min_results=len(workers), outer=outer) as coordinator:
            for worker in workers:
                body = honest.get(worker) or moved(adapter(), far)
                assert coordinator.send(worker, 0, body)[0] == 200
            _until_round(coordinator, 1)
            digests.add(coordinator.weights()[1])
            told = {entry["worker"]: entry["used"] for entry in coordinator.training.ledger.rounds()[0]["results"]}
            assert told == {worker: worker != "x" for worker in workers}
    assert len(digests) == 1


@pytest.mark.req("COORD-3")
def test_the_outlier_rule_can_be_switched_off(start: Start) -> None:
    coordinator = start(min_results=3, outer="mean", outlier_factor=0)
    for place, worker in enumerate(("a", "b", "c")):
        assert coordinator.send(worker, 0, moved(adapter(), 3000.0 if place == 2 else 0.0))[0] == 200
    assert coordinator.weights()[2]["scale"] == pytest.approx(np.full(5, 1001.0))


@pytest.mark.req("COORD-3")
def test_results_beyond_the_sums_grid_are_used_as_they_are(start: Start) -> None:
    coordinator = start(min_results=2, outer="mean")
    sent: list[Adapter] = [moved(adapter(), 1e30), moved(adapter(), -1e30)]
    sent[0]["scale"][:] = 1e-40
    sent[1]["scale"][:] = 3e-40
    for worker, body in zip("ab", sent, strict=True):
        assert coordinator.send(worker, 0, body)[0] == 200
    made = coordinator.weights()[2]
    assert made["scale"] == pytest.approx(np.full(5, 2e-40), rel=1e-4)
    assert np.abs(made[next(iter(made))]).max() < 1e24


@pytest.mark.req("COORD-1", "COORD-4")
def test_a_first_adapter_stays_as_it_was_given(start: Start) -> None:
    given = save(adapter(), {"format": "pt"})
    coordinator = start(initial=given, min_results=1, rounds=2, outer="mean")
    assert coordinator.client.get("/agirlik").data == given
    assert coordinator.send("ali", 0, moved(adapter(), 0.5))[0] == 200
    made = coordinator.client.get("/agirlik").data
    assert b"__metadata__" not in made
    assert load(made)["scale"].tolist() == [1.5] * 5


def _until_round(coordinator: Local, number: int) -> None:
    until = time.monotonic() + 60
    while coordinator.training.published.number < number:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_json_is_utf8(start: Start) -> None:
    raw: Any = start().client.get("/gorev").data
    assert "hata" in json.loads(raw.decode("utf-8"))
