"""``mingora-admin`` over a platform on each engine, and an empty one on each to move it to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moving_support import Moved, Whole, fill, whole
from support import FakeClock

from mingora_stack.admin.cli import run

Admin = Callable[..., Any]


@pytest.fixture
def source(database_url: str, clock: FakeClock, tmp_path: Path) -> Iterator[Whole]:
    with whole(database_url, tmp_path / "source-content.sqlite", clock) as it:
        yield it


@pytest.fixture
def moved(source: Whole) -> Moved:
    return fill(source)


@pytest.fixture
def target_url(bare_url: str) -> str:
    """An empty database that isn't even migrated."""
    return bare_url


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Admin:
    """Run a command on a platform: its JSON, or its error when it fails."""

    def command(url: str, content: Path, *words: str, fails: int = 0) -> Any:
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.setenv("MINGORA_CONTENT_FILE", str(content))
        capsys.readouterr()
        code = run([*words, "--json"])
        printed = capsys.readouterr()
        assert code == fails, printed.err
        return printed.err if fails else json.loads(printed.out.splitlines()[-1])

    return command
