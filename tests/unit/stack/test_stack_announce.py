"""The lines that people copy once the stack serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mingora_stack.announce import announcement


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("on_path", [True, False])
def test_the_commands_can_be_copied_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool) -> None:
    folder = tmp_path / "my bin"
    folder.mkdir()
    for name in ("python", "mingora", "mingora-admin"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder) if on_path else str(tmp_path))
    text = announcement("http://127.0.0.1:1", tmp_path / "my data", None)
    before = "" if on_path else f"'{folder}/"
    after = "" if on_path else "'"
    assert f"  {before}mingora-admin{after} --data '{tmp_path}/my data' account create NAME\n" in text
    assert text.endswith(f"  {before}mingora{after} login --server http://127.0.0.1:1 --identifier NAME")


@pytest.mark.req("AUTH-3")
def test_another_machine_is_told_what_to_trust(tmp_path: Path) -> None:
    text = announcement("https://lab:1", tmp_path, tmp_path / "ca.crt")
    assert f"login --server https://lab:1 --ca-file {tmp_path}/ca.crt --identifier NAME\n" in text
    assert text.endswith("mingora login --server https://lab:1 --ca-file mingora-ca.crt --identifier NAME")
