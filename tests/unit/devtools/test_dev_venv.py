"""devtools.venv: a half-made environment is made anew, and what fails says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools import venv


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `.venv` is to be; nothing there yet."""
    folder = tmp_path / ".venv"
    monkeypatch.setattr(venv, "VENV", folder)
    monkeypatch.setattr(venv, "BIN", folder / "bin")
    monkeypatch.setattr(venv, "PYTHON", folder / "bin" / "python")
    return folder


def test_an_environment_without_pip_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ctrl-C during the first start leaves behind, and Debian's Python without its venv package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (place / "left-over").touch()
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(venv, "_pip", lambda *words: asked.append(words))
    assert venv.ensure("services") == place / "bin" / "python"
    assert not (place / "left-over").exists()
    assert subprocess.run([venv.PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    assert len(asked) == 2


def test_a_finished_environment_is_taken_as_it_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    (place / ".installed-services").write_text(venv._fingerprint("services"))

    def refuse(*_words: Any, **_options: Any) -> None:
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert venv.ensure("services") == place / "bin" / "python"


def test_a_failure_shows_its_reason_and_the_fix(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = place.parent / "python"
    refusing.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(refusing))
    assert venv.call("services", "-V") == 1
    said = capsys.readouterr().err
    assert "ensurepip is not available" in said
    assert "apt install python3-venv" in said
