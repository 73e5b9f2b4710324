"""The live page: what it shows stays bounded, what strangers chose stays text, and a key keeps it shut."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from coordinator_support import adapter, moved, wait_for
from service.coordinator.conftest import Start

from mingora_coordinator.routes import page

KEY = "0123456789abcdef0123456789abcdef"
ASSETS = Path(page.__file__).parent / "assets"
STATE = "/sayfa/durum.json"
pytestmark = pytest.mark.req("COORD-6")


def with_password(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{key}".encode()).decode()}


def closed_round(number: int, results: int) -> dict[str, Any]:
    """A round as the ledger keeps it; the farthest result is an outlier."""
    told = [
        {
            "worker": f"w{place}",
            "digest": "0" * 64,
            "distance": float(results - place),
            "used": place > 0,
            "cosine": 0.5,
        }
        for place in range(results)
    ]
    return {"round": number, "by": "count", "outer": "mean", "opened": 1, "closed": 2, "seconds": 0.1, "results": told}


def test_the_page_is_for_the_browser_s_language_and_turkish_otherwise(start: Start) -> None:
    client = start().client
    for header, language in {
        "": "tr", "de": "tr", "tr-TR,en;q=0.5": "tr", "en-GB,en;q=0.9,tr;q=0.8": "en", "de,zh-TW;q=0.7,en;q=0.3": "zh",
        "en;q=0, zh-CN": "zh", "x" * 5000: "tr",
    }.items():  # fmt: skip
        answer = client.get("/", headers={"Accept-Language": header})
        assert f'<html lang="{language}">' in answer.text, header
        assert answer.headers["Vary"] == "Accept-Language"
        assert page.TEXTS["workers"][page.LANGUAGES.index(language)] in answer.text


def test_the_texts_are_complete_in_every_language_and_none_is_idle() -> None:
    script, skeleton = ((ASSETS / name).read_text(encoding="utf-8") for name in ("page.js", "page.html"))
    assert set(re.findall(r"\btexts\.(\w+)", script + skeleton)) == set(page.TEXTS)
    for name, words in page.TEXTS.items():
        assert len(words) == len(page.LANGUAGES), name
        assert len({frozenset(re.findall(r"\{\w+\}", text)) for text in words}) == 1, name


def test_nothing_inline_and_nothing_from_elsewhere(start: Start) -> None:
    client = start().client
    answers = [client.get(path) for path in ("/", STATE, *(f"/sayfa/{name}" for name in page.ASSETS))]
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["Content-Security-Policy"] == page.POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
    body = answers[0].text
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:|https?://", body) == []
    # Relative, so that the page works below a gateway's prefix too.
    linked = re.findall(r'(?:src|href)="([^"]*)"', body)
    assert {link.removeprefix("sayfa/") for link in linked} == set(page.ASSETS)
    script = (ASSETS / "page.js").read_text(encoding="utf-8")
    assert 'fetch("sayfa/durum.json"' in script
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script) == []


@pytest.mark.parametrize("name", ["page.html", "nope.js", "..%2fpage.py", "%2e%2e/page.py", "page.js%00", ".", ""])
def test_only_the_named_files_are_there(start: Start, name: str) -> None:
    assert start().client.get(f"/sayfa/{name}").status_code == 404


def test_a_base_model_s_name_stays_text(start: Start) -> None:
    coordinator = start()
    name = "<script>alert(1)</script>"
    coordinator.training.lora = replace(coordinator.training.lora, base_model=name)
    body = coordinator.client.get("/").text
    assert name not in body
    assert "&lt;script&gt;alert(1)" in body


@pytest.mark.req("COORD-4")
def test_a_key_is_asked_for_in_the_browser_s_own_way(start: Start) -> None:
    client = start(key=KEY).client
    for path in ("/", STATE, "/sayfa/page.js"):
        refused = client.get(path)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        assert client.get(path, headers=with_password("wrong")).status_code == 401
        assert client.get(path, headers=with_password(KEY)).status_code == 200
        assert KEY not in client.get(path, headers=with_password(KEY)).text


def test_a_training_from_its_begin_to_its_end(start: Start) -> None:
    coordinator = start(rounds=1, min_results=3)
    state = coordinator.get(STATE)
    assert (state["tur"], state["toplam_tur"], state["bitti"], state["gecmis"]) == (0, 1, False, [])
    hostile = "\u202e<img src=x onerror=alert(1)>"
    for place, worker in enumerate(("ali", "veli", hostile)):
        coordinator.get(f"/gorev?isci={worker}")
        assert coordinator.send(worker, 0, moved(adapter(), 1000.0 if place == 2 else 0.5 + place))[0] == 200
        if place == 0:
            told = coordinator.get(STATE)
            assert (told["bekleyen_sonuc"], told["en_az"], told["isci_sayisi"]) == (1, 3, 1)
            assert [(each["isci"], each["sonuc"]) for each in told["isciler"]] == [("ali", True)]
            assert told["isciler"][0]["saniye"] >= 0
    wait_for(lambda: coordinator.get(STATE)["gecmis"][0]["kosinus_en_az"] is not None)
    state = coordinator.get(STATE)
    (closed,) = state["gecmis"]
    assert (state["bitti"], state["bekleyen_sonuc"], state["isci_sayisi"]) == (True, 0, 3)
    assert state["trafik"]["yuklenen_bayt"] > 0
    assert (closed["tur"], closed["alinan"], closed["elenen"], closed["zaman_asimi"]) == (0, 2, 1, False)
    assert [(result["isci"], result["alindi"]) for result in closed["sonuclar"]] == [
        ("ali", True), ("veli", True), (hostile, False),
    ]  # fmt: skip
    assert closed["uzaklik_ortanca"] == closed["sonuclar"][1]["uzaklik"] < closed["sonuclar"][2]["uzaklik"]
    assert [result["kosinus"] for result in closed["sonuclar"]] == pytest.approx([1, 1, 1])


def test_a_result_that_outlived_its_worker_s_last_word_is_shown(start: Start, tmp_path: Path) -> None:
    before = start()
    assert before.send("ali", 0, moved(adapter(), 1))[0] == 200
    before.__exit__(None, None, None)
    assert start().get(STATE)["isciler"] == [{"isci": "ali", "saniye": None, "sonuc": True}]


def test_what_is_shown_is_bounded_however_many_take_part(start: Start) -> None:
    coordinator = start(rounds=100_000)
    for number in range(10_000):
        coordinator.training.heard_of(f"worker-{number}-" + "x" * 180)
    for number in range(200):
        coordinator.training.ledger.closed(closed_round(number, 4095 if number == 199 else 3))
    answer = coordinator.client.get(STATE)
    assert len(answer.data) < 500_000
    state = json.loads(answer.data)
    assert (state["isci_sayisi"], len(state["isciler"])) == (10_000, page.MAX_WORKERS)
    assert state["isciler"][0]["isci"].startswith("worker-9999-")
    assert [closed["tur"] for closed in state["gecmis"]] == list(range(200 - page.MAX_ROUNDS, 200))
    last = state["gecmis"][-1]
    assert (last["alinan"], last["elenen"], len(last["sonuclar"])) == (4094, 1, page.MAX_MARKS)
    marks = [result["uzaklik"] for result in last["sonuclar"]]
    assert (marks[0], marks[-1], last["sonuclar"][-1]["alindi"]) == (1.0, 4095.0, False)
    assert marks == sorted(set(marks))


def test_the_files_travel_with_the_package() -> None:
    packaging = (Path(__file__).parents[3] / "services" / "pyproject.toml").read_text(encoding="utf-8")
    assert 'mingora_coordinator = ["routes/assets/*"]' in packaging
    assert {path.name for path in ASSETS.iterdir()} == {*page.ASSETS, "page.html"}
