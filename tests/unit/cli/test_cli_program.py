"""The program around the commands: start, languages, help, completion, notebooks."""

from __future__ import annotations

import argparse
import gettext
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mingora import Client, argparse_texts
from mingora.api_texts import reason_text
from mingora.cli import parser
from mingora.commands import COMMANDS, completion
from mingora.i18n import LOCALE_DIR, catalogue, choose_language
from mingora.jobs import Job
from mingora.output import harmless, size_text, table

CLI = Path(__file__).parents[3] / "cli"


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONIOENCODING": "utf-8", **environ}
    command = [sys.executable, "-I", "-S", str(CLI / "mingora.py"), *argv]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=env, check=False)


@pytest.mark.req("CLI-1")
def test_runs_unpacked_with_the_standard_library_alone() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mingora 0.1.0\n", "")
    (CLI / "mingora.py").read_bytes().decode("ascii")  # so that even Python 2 reads it and says what is needed


@pytest.mark.req("CLI-1", "CLI-12")
def test_the_version_needs_no_network_modules() -> None:
    code = "import sys; from mingora.cli import parser; parser(); print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["http.client", "ssl", "urllib.request", "json", "email", "mingora.client", "mingora.transport", "hashlib"]
    env = {"PYTHONPATH": str(CLI), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *heavy], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.req("CLI-2")
def test_every_command_is_there() -> None:
    wanted = (
        "login init submit status logs wait download logout whoami token list cancel rm events explain nodes policy"
    )
    names = {command.name for command in COMMANDS} | {"list"}
    assert {*wanted.split(), "policy", "doctor", "completion"} == names


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_TW", "LC_ALL": "en_US"}, "en"),
        ({"LANG": "tr_TR", "MINGORA_LANG": "zh-CN"}, "zh_CN"),
        ({"LANG": "tr_TR", "MINGORA_LANG": "en"}, "en"),
        ({"LANG": "de_DE"}, "en"),
        ({"LANGUAGE": "tr:en", "LANG": "en_US"}, "tr"),
    ],
)
def test_language(environ: dict[str, str], language: str) -> None:
    assert choose_language(environ) == language


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("language", "help_heading", "usage_error", "own"),
    [
        ("tr", "seçenekler", "şu argümanlar gerekli: KOMUT", "Oturum açılmamış."),
        ("zh_CN", "选项", "缺少必需的参数：命令", "尚未登录。"),
    ],
)
def test_help_usage_errors_and_messages_are_translated(
    language: str, help_heading: str, usage_error: str, own: str
) -> None:
    assert help_heading in run("--help", MINGORA_LANG=language).stdout
    wrong = run(MINGORA_LANG=language)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert usage_error in wrong.stderr
    assert own in run("status", MINGORA_LANG=language).stderr


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("language", ["tr", "zh_CN"])
def test_a_translated_help_has_no_english_left(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text of the parser, its subcommands included, is found in the catalogue."""
    messages = catalogue("mingora", LOCALE_DIR, language)
    seen: list[str] = []

    def keep(_self: object, text: str) -> str:
        seen.append(text)
        return text

    monkeypatch.setattr("mingora.i18n.gettext.NullTranslations.gettext", keep)
    parser()
    monkeypatch.undo()
    assert isinstance(messages, gettext.GNUTranslations)
    kept = {"CPU"}
    assert [text for text in seen if text not in kept and messages.gettext(text) == text] == []
    for text in argparse_texts.MESSAGES:
        one, _zero, many = text.partition("\0")
        found = messages.ngettext(one, many, 2) if many else messages.gettext(text)
        assert found not in {one, many}


@pytest.mark.req("CLI-12")
def test_argparse_says_these_texts_word_for_word() -> None:
    source = Path(argparse.__file__).read_text(encoding="utf-8")
    parts = [part for text in argparse_texts.MESSAGES for part in text.split("\0")]
    assert [part for part in parts if part.replace("\n", "\\n") not in source] == []


@pytest.mark.req("CLI-2")
@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mingora sub", {"submit"}),
        ("mingora submit --k", {"--key"}),
        ("mingora submit folder --w", {"--wait"}),
        ("mingora token re", {"revoke"}),
        ("mingora completion z", {"zsh"}),
        ("mingora init x --template s", set()),
    ],
)
def test_bash_completes(line: str, offered: set[str]) -> None:
    script = completion._bash(list(completion._tree(parser(), "")))
    ask = f'COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _mingora; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_scripts_name_every_command(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert all(command.name in done.stdout for command in COMMANDS)


@pytest.mark.req("CLI-11")
def test_import_is_lazy_and_a_job_shows_itself_escaped() -> None:
    assert Client.__module__ == "mingora.client"
    job = Job(id="job_1", name="<script>", state="failed", reason={"code": "exit_code", "message": "<b>"})
    page = job._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b>" not in page
    assert (job["id"], job.finished, job.exit_code) == ("job_1", True, 100)


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize(
    ("language", "text"), [("en", "signal: Killed."), ("tr", "sinyal"), ("zh_CN", "命令被信号终止 (Killed.)")]
)
def test_reasons_are_in_the_readers_language(language: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGORA_LANG", language)
    monkeypatch.setattr("mingora.api_texts._", catalogue("mingora", LOCALE_DIR, language).gettext)
    assert text in reason_text({"code": "signal", "message": "Killed."})
    assert reason_text({"code": "new_code", "message": "New."}) == "new_code: New."


@pytest.mark.req("CLI-12")
def test_text_for_terminals_is_harmless_and_aligned() -> None:
    assert harmless("ok ü 数 \n\t") == "ok ü 数 \n\t"
    assert harmless("\x1b[2J\r\x9b\u202e\x00") == "\\x1b[2J\\r\\x9b\\u202e\\x00"
    assert table(["a", "b"], [["数", 1], ["xyz", 22]]) == "a    b\n数   1\nxyz  22"
    assert [size_text(size) for size in (0, 1023, 1536, 3 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]


@pytest.mark.req("CLI-12")
def test_catalogues_are_complete_and_compiled() -> None:
    """Nothing untranslated, fuzzy or unused, placeholders equal, each .mo in step with its .po."""
    done = subprocess.run(
        [sys.executable, "-m", "devtools.catalogues"], cwd=CLI.parent, capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if not line.startswith("worker/")] == []
