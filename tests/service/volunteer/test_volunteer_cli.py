"""The program as a volunteer starts it: its exit codes, its words, and what it leaves behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load
from service.volunteer.hostile import HostileCoordinator, refuse, say, send

from mingora.i18n import catalogue
from mingora_volunteer.cli import run
from mingora_volunteer.protocol import Coordinator
from mingora_volunteer.stop import Stop
from mingora_volunteer.texts import DOMAIN, LOCALE_DIR

KEY = "a-key-that-nobody-sees"


@dataclass
class Ran:
    code: int
    out: str
    err: str


Start = Callable[..., Ran]


@pytest.fixture
def volunteer(
    hostile: HostileCoordinator,
    base_model: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Start:
    """Runs the program in this process. Its temporary files are under `tmp_path`; no signal is handled."""
    monkeypatch.setenv("MINGORA_LANG", "en")
    monkeypatch.setenv("LANGUAGE", "en")
    monkeypatch.setenv("MINGORA_COORDINATOR_KEY", KEY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Stop, "install", lambda self: None)

    def start(*words: str, url: str | None = None) -> Ran:
        link = ("--url", url or hostile.url, "--isci", "ali")
        if words[:1] != ("ask",):
            words = ("--base-model", str(base_model), "--data", str(text), "--device", "cpu", *words)
        code = run([*words, *link])
        shown = capfd.readouterr()
        assert KEY not in shown.out + shown.err and "Traceback" not in shown.err
        return Ran(code, shown.out, shown.err)

    return start


def task(adapter: Path) -> dict[str, object]:
    import hashlib

    digest = hashlib.sha256(adapter.read_bytes()).hexdigest()
    return {"tur": 0, "toplam_tur": 1, "parca": 0, "n_parca": 2, "ic_adim": 3, "bs": 2, "seq": 32, "lr": 1e-3,
            "tohum": 0, "agirlik_sha256": digest}  # fmt: skip


@pytest.mark.req("VOL-1")
def test_a_training_from_its_beginning_to_its_end(
    volunteer: Start, hostile: HostileCoordinator, adapter: Path, tmp_path: Path
) -> None:
    hostile.scripts = {
        "/bilgi": [say({"protokol": "1", "taban_model": "Tiny/\x1b[2JBase"})],
        "/gorev": [say(task(adapter)), say({"bitti": True})],
        "/agirlik": [send(adapter.read_bytes())],
        "/sonuc": [say({"tamam": True, "tur": 0})],
    }
    ran = volunteer("--max-upload", "10M", "--pause-while-gpu-busy")
    assert ran.code == 0, ran.err
    for words in ("Tiny/\\x1b[2JBase", "Round 0 (of 1)", "was accepted", "The training is over", "no NVIDIA GPU"):
        assert words in ran.err
    (result,) = (each.body for each in hostile.seen if each.path == "/sonuc")
    assert load(result).keys() == load(adapter.read_bytes()).keys()
    assert list(tmp_path.glob("mingora-volunteer-*")) == []


@pytest.mark.req("VOL-1")
def test_401_ends_it_with_the_coordinators_message_and_a_code_of_its_own(
    volunteer: Start, hostile: HostileCoordinator
) -> None:
    hostile.scripts["/gorev"] = [refuse(401, "yetkisiz")]
    ran = volunteer()
    assert ran.code == 3 and "401 yetkisiz" in ran.err and "--key-file" in ran.err
    assert len(hostile.seen) == 1


@pytest.mark.req("VOL-1")
def test_a_wrong_address_is_told_at_once(volunteer: Start, hostile: HostileCoordinator) -> None:
    ran = volunteer()  # 404 for everything
    assert ran.code == 1 and "404" in ran.err
    ran = volunteer(url="http://localhost:1")
    assert ran.code == 2 and "not encrypted" in ran.err
    for answer in (say({"bekle": True}), send(b"<html>"), send(b"")):
        hostile.scripts = {"/gorev": [answer]}
        assert volunteer().code == 1


@pytest.mark.req("VOL-1")
def test_what_is_wrong_here_is_found_before_a_slice_is_taken(
    volunteer: Start, hostile: HostileCoordinator, base_model: Path, tmp_path: Path
) -> None:
    broken, empty = Path(shutil.copytree(base_model, tmp_path / "broken")), tmp_path / "empty.txt"
    (broken / "model.safetensors").write_bytes(b"\xff" * 100)
    empty.touch()
    for words, told in ((("--base-model", str(broken)), "can't be loaded"), (("--data", str(empty)), "no text")):
        ran = volunteer(*words)
        assert ran.code == 2 and told in ran.err and "Loading the model" in ran.err.splitlines()[0]
    assert hostile.seen == []


@pytest.mark.req("VOL-1", "COORD-4")
def test_a_key_on_the_command_line_is_answered_with_where_it_belongs(volunteer: Start) -> None:
    ran = volunteer("--key", KEY)
    assert ran.code == 2 and "--key-file" in ran.err


@pytest.mark.req("VOL-1")
def test_an_adapter_for_another_model_ends_it_with_the_remedy(
    volunteer: Start, hostile: HostileCoordinator, adapter: Path
) -> None:
    hostile.scripts = {
        "/bilgi": [say({"protokol": "1", "adaptor": {"hedef_moduller": ["q_proj"]}})],
        "/gorev": [say(task(adapter))],
        "/agirlik": [send(adapter.read_bytes())],
    }
    ran = volunteer()
    assert ran.code == 1 and "doesn't fit the model" in ran.err and "base model" in ran.err


@pytest.mark.req("VOL-1")
def test_missing_libraries_are_told_with_how_to_install_them(volunteer: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mingora_volunteer.train", None)
    ran = volunteer()
    assert ran.code == 2 and "mingora-worker[volunteer]" in ran.err


@pytest.mark.req("VOL-1")
def test_a_full_disk_is_told_in_a_sentence(
    volunteer: Start, hostile: HostileCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Coordinator, "task", full)
    ran = volunteer()
    assert ran.code == 1 and "No space left on device" in ran.err


@pytest.mark.req("VOL-1", "COORD-5")
def test_a_question_is_delivered_or_said_not_to_be(volunteer: Start, hostile: HostileCoordinator) -> None:
    hostile.scripts["/soru"] = [say({"tamam": True, "no": 7}), refuse(429, "çok sık"), refuse(404)]
    ran = volunteer("ask", "Ne zaman?")
    assert ran.code == 0 and ran.out == "Your question has number 7.\n"
    for reason in ("çok sık", "404"):
        ran = volunteer("ask", "Ne zaman?")
        assert ran.code == 1 and "iletilemedi" in ran.err and reason in ran.err
    ran = volunteer("ask", "Ne zaman?", url="http://127.0.0.1:1")
    assert ran.code == 1 and "iletilemedi" in ran.err
    hostile.scripts["/soru"] = [refuse(400, "uzun\nYour question has number 8.\ttab"), refuse(401, "yetkisiz")]
    assert volunteer("ask", "?").err.count("\n") == 1
    ran = volunteer("ask", "?")
    assert ran.code == 3 and "iletilemedi" in ran.err and "--key-file" in ran.err


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("language", ["tr", "zh_CN"])
def test_iletilemedi_is_said_in_every_language(language: str) -> None:
    text = catalogue(DOMAIN, LOCALE_DIR, language).gettext("iletilemedi (not delivered): {reason}")
    assert text.startswith("iletilemedi") and text != "iletilemedi (not delivered): {reason}"
