"""The catalogues: every message is translated, keeps its placeholders, and is compiled as it is written."""

from __future__ import annotations

import io
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

import mingora_worker
from mingora.i18n import LANGUAGES, catalogue
from mingora_worker.texts import DOMAIN, LOCALE_DIR

PACKAGE = Path(mingora_worker.__file__).parent
TRANSLATED = [language for language in LANGUAGES if language != "en"]


def messages() -> set[str]:
    found = extract_from_dir(str(PACKAGE), keywords={"_": None})
    return {str(message) for _name, _line, message, _comments, _context in found}


def placeholders(text: str) -> set[str]:
    return {name for _literal, name, _spec, _conversion in string.Formatter().parse(text) if name}


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("language", TRANSLATED)
def test_every_message_is_translated(language: str) -> None:
    folder = LOCALE_DIR / language / "LC_MESSAGES"
    with (folder / f"{DOMAIN}.po").open("rb") as file:
        po = read_po(file, locale=language)
    translated = {str(m.id): str(m.string) for m in po if m.id and m.string and not m.fuzzy}
    assert set(translated) == messages()
    for message, text in translated.items():
        assert placeholders(text) == placeholders(message)
    compiled = io.BytesIO()
    write_mo(compiled, po)
    assert compiled.getvalue() == (folder / f"{DOMAIN}.mo").read_bytes()
    assert catalogue(DOMAIN, LOCALE_DIR, language).gettext("The worker has stopped.") != "The worker has stopped."


@pytest.mark.req("CLI-12", "WORK-2")
@pytest.mark.parametrize(("language", "word"), [("en", "native"), ("zh_CN", "原生"), ("tr", "yerel")])
def test_the_worker_speaks_the_chosen_language(language: str, word: str, tmp_path: Path) -> None:
    launcher = PACKAGE.parent / "mingora_worker.py"
    env = {**os.environ, "MINGORA_LANG": language, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(launcher), "--root", str(tmp_path / "root")]
    done = subprocess.run(command, env=env, capture_output=True, timeout=30, check=False)
    assert done.returncode == 2
    assert word in done.stderr.decode()
