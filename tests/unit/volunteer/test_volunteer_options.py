"""The command lines, addresses, keys and languages of the volunteer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from mingora.errors import ApiError, InsecureServer, LostAnswer, MingoraError, NotSent, UsageProblem
from mingora_volunteer import display as display_module
from mingora_volunteer.address import parse_address
from mingora_volunteer.config import Question, Training, parse
from mingora_volunteer.display import Display
from mingora_volunteer.gpu import Courtesy, NoFigures, gpu_percent
from mingora_volunteer.loop import Diverged
from mingora_volunteer.messages import BadAnswer
from mingora_volunteer.texts import volunteer_language

INSECURE = [
    "http://localhost:8750", "http://127.0.0.1.evil:8750", "http://127.0.0.2:8750", "http://[::1]:8750",
    "http://0.0.0.0:8750", "http://127.1:8750", "http://2130706433", "http://0x7f.0.0.1", "http://127.0.0.1.:8750",
    "http://coordinator.example.org", "HTTP://EXAMPLE.ORG", "http://[::ffff:127.0.0.1]", "http://127.000.000.001",
]  # fmt: skip
NO_ADDRESS = [
    "", "127.0.0.1:8750", "ftp://127.0.0.1", "https://", "http://127.0.0.1:99999", "http://127.0.0.1:0", "https://a b",
    "https://a\r\nX: y", "https://a?x=1", "https://a#x", "http://127.0.0.1@evil.example", "http://evil\\@127.0.0.1",
    "https://user:word@a", "http://127.0.0.1\u2024evil", "https://ü.example", "https://[::1",
]  # fmt: skip


@pytest.mark.req("VOL-1", "COORD-4")
@pytest.mark.parametrize("url", INSECURE)
def test_plain_http_is_refused_to_every_address_but_127_0_0_1(url: str) -> None:
    with pytest.raises(InsecureServer):
        parse_address(url)


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("url", NO_ADDRESS)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageProblem):
        parse_address(url)


@pytest.mark.req("VOL-1")
def test_addresses_may_have_a_path_in_front_of_the_protocols() -> None:
    assert parse_address("http://127.0.0.1:8750").origin == "http://127.0.0.1:8750"
    behind = parse_address("https://Example.org/v1coordinator/")
    assert (behind.host, behind.port, behind.base) == ("example.org", 443, "/v1coordinator")
    assert parse_address("https://[2001:db8::1]:8443").netloc == "[2001:db8::1]:8443"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A whole command line."""
    (tmp_path / "model").mkdir()
    (tmp_path / "text.txt").write_text("text")
    return ["--url", "http://127.0.0.1:1", "--isci", "ali", "--base-model", str(tmp_path / "model"),
            "--data", str(tmp_path / "text.txt")]  # fmt: skip


@pytest.mark.req("VOL-1")
def test_a_training_command_line(words: list[str]) -> None:
    plain = parse(words, {})
    assert isinstance(plain, Training) and plain.device is None and plain.max_upload is None and not plain.abandon
    full = parse(
        [*words, "--device", "cuda:1", "--max-upload", "500K", "--pause-while-gpu-busy", "--on-stop", "abandon"], {}
    )
    assert isinstance(full, Training) and full.device == "cuda:1" and full.max_upload == 512000
    assert full.pause_while_gpu_busy and full.abandon


WRONG = [
    ["--isci", ""], ["--isci", "a" * 61], ["--isci", "a\nb"], ["--isci", " ali"], ["--url", "nowhere"],
    ["--base-model", "/nothing/here"], ["--data", "/nothing/here"], ["--device", "CUDA 1"], ["--max-upload", "fast"],
    ["--ca-file", "/nothing/here"], ["--key-file", "/nothing/here"],
]  # fmt: skip


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(wrong)[:40])
def test_wrong_options_are_refused_in_a_sentence(words: list[str], wrong: list[str]) -> None:
    with pytest.raises(UsageProblem):
        parse([*words, *wrong], {})


@pytest.mark.req("VOL-1")
def test_a_question(words: list[str]) -> None:
    asked = parse(["ask", "Ne zaman?", *words[:4]], {})
    assert isinstance(asked, Question) and asked.text == "Ne zaman?" and asked.link.name == "ali"
    for text in ("", "x" * 2001):
        with pytest.raises(UsageProblem):
            parse(["ask", text, *words[:4]], {})
    assert isinstance(parse(["ask", "x" * 2000, *words[:4]], {}), Question)


@pytest.mark.req("VOL-1", "COORD-4")
def test_the_key_comes_from_a_file_or_the_environment_and_is_never_shown(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(words, {}).link.key is None
    given = parse(words, {"MINGORA_COORDINATOR_KEY": "a-key-of-ours"})
    assert given.link.key == "a-key-of-ours" and "a-key-of-ours" not in repr(given)
    file = tmp_path / "key"
    file.write_text("another-key\n")
    file.chmod(0o600)
    for option in ("--key-file", "--anahtar-dosyasi"):
        assert parse([*words, option, str(file)], {"MINGORA_COORDINATOR_KEY": "x"}).link.key == "another-key"
    assert capsys.readouterr().err == ""
    file.chmod(0o644)
    parse([*words, "--key-file", str(file)], {})
    assert "chmod 600" in (told := capsys.readouterr().err) and "another-key" not in told


@pytest.mark.req("VOL-1", "COORD-4")
@pytest.mark.parametrize(
    "form", [["--key", "a-secret"], ["--key=a-secret"], ["--anahtar", "a-secret"], ["--key", "-a-secret"]]
)
@pytest.mark.parametrize("question", [[], ["ask", "Ne zaman?"]])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(
    words: list[str], form: list[str], question: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*question, *words[:4], *form] if question else [*form, *words]
    with pytest.raises(UsageProblem) as caught:
        parse(line, {"MINGORA_COORDINATOR_KEY": "x"})
    assert "--key-file" in str(caught.value.hint) and "MINGORA_COORDINATOR_KEY" in str(caught.value.hint)
    assert "a-secret" not in caught.value.message + str(caught.value.hint) + capsys.readouterr().err


@pytest.mark.req("VOL-1", "COORD-4")
@pytest.mark.parametrize("key", ["two words", "a\r\nX: y", "anahtarı", "k" * 1025, "\n", "a\x00b"])
def test_a_key_that_no_header_can_carry_is_refused(words: list[str], tmp_path: Path, key: str) -> None:
    file = tmp_path / "key"
    file.write_text(key, encoding="utf-8")
    for more, environ in ((["--key-file", str(file)], {}), ([], {"MINGORA_COORDINATOR_KEY": key})):
        with pytest.raises(UsageProblem) as caught:
            parse([*words, *more], environ)
        assert key not in caught.value.message


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "tr"), ({"LANG": "C.UTF-8"}, "tr"), ({"LANG": "POSIX"}, "tr"), ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "de_DE.UTF-8"}, "tr"), ({"LANG": "en_GB.UTF-8"}, "en"), ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "en_GB.UTF-8", "MINGORA_LANG": "tr"}, "tr"), ({"LC_ALL": "en_US", "LANG": "tr_TR"}, "en"),
    ],
)  # fmt: skip
def test_turkish_is_read_unless_the_locale_is_english_or_chinese(environ: dict[str, str], language: str) -> None:
    assert volunteer_language(environ, "linux") == language


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.req("VOL-1")
def test_a_bar_on_a_terminal_and_none_in_a_file() -> None:
    now = 0.0
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        shown = Display(stream, lambda: now)
        for step in range(20):
            shown.training(step + 1, 20, 2.5)
        shown.note("Round over.")
    assert "20 of 20, loss 2.500" in terminal.getvalue() and terminal.getvalue().count("Training") == 2
    assert "#" in terminal.getvalue() and terminal.getvalue().endswith("Round over.\n")
    assert file.getvalue().endswith("Round over.\n") and file.getvalue().count("\n") == 1


@pytest.mark.req("VOL-1")
def test_the_same_trouble_is_told_once_a_minute_and_its_end_once() -> None:
    now = 0.0
    stream = io.StringIO()
    shown = Display(stream, lambda: now)
    for now in range(0, 130, 10):  # noqa: B007 - the clock reads it
        shown.trouble(NotSent("It can't be reached"))
    shown.relief()
    shown.relief()
    assert stream.getvalue().count("It can't be reached. Trying again.") == 2
    assert stream.getvalue().count("answers again") == 1


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize(
    ("error", "away"),
    [
        (LostAnswer("cut"), True), (ApiError("http_503", 503, "busy"), True), (ApiError("http_429", 429, "no"), False),
        (Diverged("not finite"), False), (BadAnswer("another digest"), False),
    ],
)  # fmt: skip
def test_a_coordinator_answers_again_only_when_it_was_away(error: MingoraError, away: bool) -> None:
    stream = io.StringIO()
    shown = Display(stream, lambda: 0.0)
    shown.trouble(error)
    shown.relief()
    shown.trouble(error)  # told again: the one before is over
    assert stream.getvalue().count("Trying again") == 2
    assert ("answers again" in stream.getvalue()) == away


@pytest.mark.req("VOL-1")
def test_without_a_terminal_a_line_now_and_then_tells_of_the_progress() -> None:
    now = 0.0
    stream = io.StringIO()
    shown = Display(stream, lambda: now)
    for step in range(200):
        now = step * 10.0
        shown.training(step + 1, 200, 2.5)
    assert "Training: 7 of 200, loss 2.500\n" in stream.getvalue()
    assert stream.getvalue().count("\n") == 33
    shown.uploading(1, 2)
    assert stream.getvalue().count("\n") == 33


@pytest.mark.req("VOL-1")
def test_a_coordinators_words_do_not_steer_the_terminal() -> None:
    stream = io.StringIO()
    Display(stream).note("\x1b[2J\u202ex\ny")
    assert "\x1b" not in stream.getvalue() and "\u202e" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1 and display_module.REDRAW_SECONDS > 0


@pytest.mark.req("VOL-1")
def test_courtesy_waits_while_somebody_else_uses_the_gpu() -> None:
    now, figures = 0.0, [0, 90, 80, 10, 9]
    notes: list[str] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    courtesy = Courtesy(lambda: figures.pop(0), notes.append, clock=lambda: now, sleep=sleep)
    courtesy()
    assert figures == [90, 80, 10, 9] and notes == []
    courtesy()
    assert figures == [90, 80, 10, 9]  # half a minute hasn't passed
    now += 31
    courtesy()
    assert figures == [] and len(notes) == 2


@pytest.mark.req("VOL-1")
def test_without_nvidia_smi_courtesy_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoFigures):
        gpu_percent("GPU-0")
    notes: list[str] = []
    Courtesy(lambda: gpu_percent("GPU-0"), notes.append, clock=lambda: 0.0, sleep=lambda _seconds: None)()
    assert len(notes) == 1 and "nvidia-smi" in notes[0]


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize(("said", "figure"), [("37", 37), ("[N/A]", None), ("", None), ("37\n12", None)])
def test_nvidia_smis_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, figure: Any) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{said}\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if figure is not None:
        assert gpu_percent("GPU-0") == figure
    else:
        with pytest.raises(NoFigures):
            gpu_percent("GPU-0")
