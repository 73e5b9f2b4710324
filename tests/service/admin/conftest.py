"""``mingora-admin`` over a platform on each engine, and an empty one on each to move it to."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.engine("postgres"))])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database that isn't even migrated."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.sqlite"
        return
    template: sa.URL = request.getfixturevalue("postgres_template")
    name = f"mingora_target_{secrets.token_hex(6)}"
    engine = sa.create_engine(template.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
        yield template.set(database=name).render_as_string(hide_password=False)
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


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
