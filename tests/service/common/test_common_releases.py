"""From every release, with data in it, up to this code and back down, on both engines.

``tests/releases/VERSION.json`` holds a release's rows. A release adds its file; no file ever changes after it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.common.test_common_migration import KILLED
from support import START

from mingora_common.auth import hash_token
from mingora_common.db import migrate
from mingora_common.db.views import job_status, live_token

RELEASES = sorted((Path(__file__).parents[2] / "releases").glob("*.json"))
NEXT = '''
"""What a next release might do.

Revision: 9001
"""
import os

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9001", "{head}", None, None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("note", sa.String(20), nullable=False, server_default="new"))
    op.create_index("ix_jobs_note", "jobs", ["note"])
    if os.environ.get("BREAK"):
        raise RuntimeError("broken in the middle")
    op.create_table("extra", sa.Column("id", sa.String(8), primary_key=True))
    op.execute("UPDATE jobs SET note = 'moved'")


def downgrade() -> None:
    op.drop_table("extra")
    op.drop_index("ix_jobs_note", "jobs")
    op.drop_column("jobs", "note")
'''


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return data


@pytest.fixture
def released(bare_url: str, release: dict[str, Any]) -> str:
    """A database as that release left it."""
    migrate.upgrade(bare_url, release["revision"])
    engine = sa.create_engine(bare_url)
    with engine.begin() as connection:
        for name, table in reflected(connection).items():
            stored = release["tables"][name]
            assert [column.name for column in table.columns] == stored["columns"]
            rows = [dict(zip(stored["columns"], map(value, table.columns, row), strict=True)) for row in stored["rows"]]
            if rows:
                connection.execute(sa.insert(table), rows)
    engine.dispose()
    return bare_url


def value(column: Any, stored: Any) -> Any:
    if isinstance(column.type, sa.LargeBinary):
        return base64.b64decode(stored)
    return sa.null() if stored is None and isinstance(column.type, sa.JSON) else stored


def reflected(connection: sa.Connection) -> dict[str, sa.Table]:
    metadata = sa.MetaData()
    metadata.reflect(connection)
    return {name: table for name, table in metadata.tables.items() if name != "alembic_version"}


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection that is closed however the test goes."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection


def contents(url: str, release: dict[str, Any]) -> dict[str, list[str]]:
    """The release's columns of every row of its tables, as they are now."""
    with connected(url) as connection:
        tables = reflected(connection)
        found = {}
        for name, stored in release["tables"].items():
            query = sa.select(*(tables[name].c[column] for column in stored["columns"]))
            found[name] = sorted(repr(tuple(row)) for row in connection.execute(query))
    return found


def ask(url: str, query: Any) -> list[Any]:
    with connected(url) as connection:
        return list(connection.execute(query).all())


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This code with one more migration than it has."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate._MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v9001_next.py").write_text(NEXT.replace("{head}", migrate.head()), encoding="utf-8")
    monkeypatch.setattr(migrate, "_MIGRATIONS", folder)
    return folder


@pytest.mark.req("OPS-1", "OPS-2")
def test_an_upgrade_keeps_every_row_and_the_services_read_them(released: str, release: dict[str, Any]) -> None:
    before = contents(released, release)
    assert sum(map(len, before.values())) > 30 and all(before[name] for name in ("jobs", "log_chunks", "pins", "audit"))
    migrate.upgrade(released)
    migrate.check(released)
    assert contents(released, release) == before
    states = {row.name: row.state for row in ask(released, sa.select(job_status))}
    assert set(states.values()) == {"succeeded", "running"}
    live = ask(released, sa.select(live_token.c.kind).where(live_token.c.expires_at > START))
    assert sorted(row.kind for row in live) == ["lease", "node", "node", "user"]
    assert not ask(released, sa.select(live_token).where(live_token.c.hash == hash_token("mgu_x")))


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_downgrade_gives_the_release_back_and_then_nothing(released: str, release: dict[str, Any]) -> None:
    before = contents(released, release)
    migrate.upgrade(released)
    migrate.downgrade(released, release["revision"])
    assert contents(released, release) == before
    migrate.downgrade(released, "base")
    with connected(released) as connection:
        assert reflected(connection) == {} and sa.inspect(connection).get_view_names() == []
    migrate.upgrade(released)
    migrate.check(released)


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_next_release_changes_what_it_says_and_its_downgrade_loses_only_that(
    released: str, release: dict[str, Any], next_release: Path
) -> None:
    before = contents(released, release)
    migrate.upgrade(released)
    assert contents(released, release) == before
    assert {row.note for row in ask(released, sa.text("SELECT note FROM jobs"))} == {"moved"}
    migrate.downgrade(released, release["revision"])
    assert contents(released, release) == before
    with pytest.raises(sa.exc.DBAPIError):
        ask(released, sa.text("SELECT note FROM jobs"))


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_migration_that_breaks_in_the_middle_has_changed_nothing(
    released: str, release: dict[str, Any], next_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(released, release["revision"])
    before = contents(released, release)
    monkeypatch.setenv("BREAK", "1")
    with pytest.raises(RuntimeError):
        migrate.upgrade(released)
    monkeypatch.delenv("BREAK")
    assert contents(released, release) == before
    with pytest.raises(sa.exc.DBAPIError):
        ask(released, sa.text("SELECT note FROM jobs"))
    migrate.upgrade(released)
    assert {row.note for row in ask(released, sa.text("SELECT note FROM jobs"))} == {"moved"}


@pytest.mark.req("OPS-1", "OPS-2")
def test_an_older_code_refuses_and_changes_nothing(
    released: str, release: dict[str, Any], next_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(released)
    before = contents(released, release)
    monkeypatch.undo()
    for act in (migrate.check, migrate.upgrade, lambda url: migrate.downgrade(url, "base")):
        with pytest.raises(migrate.SchemaError, match="newer Mingora"):
            act(released)
    assert contents(released, release) == before


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_newer_code_says_that_a_migration_is_due(released: str, next_release: Path) -> None:
    with pytest.raises(migrate.SchemaError, match="mingora-admin migrate"):
        migrate.check(released)


@pytest.mark.req("OPS-1", "OPS-2")
def test_a_database_that_lacks_something_is_refused(bare_url: str) -> None:
    migrate.upgrade(bare_url)
    engine = sa.create_engine(bare_url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP VIEW job_event"))
        connection.execute(sa.text("DROP TABLE pins"))
    engine.dispose()
    with pytest.raises(migrate.SchemaError, match="job_event, pins"):
        migrate.check(bare_url)


@pytest.mark.req("OPS-1", "OPS-2")
def test_another_programs_database_is_left_alone(bare_url: str) -> None:
    engine = sa.create_engine(bare_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE jobs (theirs INTEGER)"))
    engine.dispose()
    for act in (migrate.check, migrate.upgrade):
        with pytest.raises(migrate.SchemaError, match="didn't make"):
            act(bare_url)
    assert ask(bare_url, sa.text("SELECT theirs FROM jobs")) == []


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("statements", [1, 7, 20])
def test_a_killed_migration_is_done_again_on_a_server_too(postgres_url: str, statements: int) -> None:
    migrate.downgrade(postgres_url, "base")
    command = [sys.executable, "-c", KILLED, postgres_url, str(statements)]
    killed = subprocess.run(command, capture_output=True, timeout=60, env=dict(os.environ))
    assert killed.returncode == -9, killed.stderr
    with connected(postgres_url) as connection:
        assert reflected(connection) == {}
    migrate.upgrade(postgres_url)
    migrate.check(postgres_url)
