"""Fixtures of every test: a migrated database of its own (SQLite, or PostgreSQL where one runs), a clock, a seed."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from hypothesis import settings
from support import FakeClock, Seed

if TYPE_CHECKING:
    from docker_support import Registry

if "CI" not in os.environ:  # there Hypothesis has a profile of its own, by which every run is the same
    settings.register_profile("here", deadline=None)  # how long an example takes is the machine's business
    settings.load_profile("here")
POSTGRES = os.environ.get("MINGORA_TEST_POSTGRES")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Commands that are run inside the test's process narrow it; the next test has it as it was."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty migrated SQLite file to copy from."""
    from mingora_common.db import migrate

    path = tmp_path_factory.mktemp("template") / "platform.sqlite"
    migrate.upgrade(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[sa.URL]:
    """An empty migrated PostgreSQL database to copy from."""
    from mingora_common.db import migrate

    if POSTGRES is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs PostgreSQL: MINGORA_TEST_POSTGRES is not set")
        pytest.skip("no PostgreSQL (MINGORA_TEST_POSTGRES)")
    name = f"mingora_template_{secrets.token_hex(4)}"
    _administer(f"CREATE DATABASE {name}")
    url = sa.make_url(POSTGRES).set(database=name)
    migrate.upgrade(url.render_as_string(hide_password=False))
    yield url
    _administer(f"DROP DATABASE {name}")


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A migrated SQLite database of this test's own."""
    path = tmp_path / "platform.sqlite"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres_template: sa.URL) -> Iterator[str]:
    """A migrated PostgreSQL database of this test's own."""
    name = f"mingora_test_{secrets.token_hex(6)}"
    _administer(f"CREATE DATABASE {name} TEMPLATE {postgres_template.database}")
    yield postgres_template.set(database=name).render_as_string(hide_password=False)
    _administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.engine("postgres"))])
def database_url(request: pytest.FixtureRequest) -> str:
    """One suite over both engines: the test runs once on each."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def seed(database_url: str, clock: FakeClock) -> Iterator[Seed]:
    """Writes rows into this test's ``database_url``."""
    seed = Seed(database_url, clock)
    yield seed
    seed.engine.dispose()


def _administer(statement: str) -> None:
    assert POSTGRES is not None
    engine = sa.create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.engine("postgres"))])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it at all, on each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/bare.sqlite"
        return
    template: sa.URL = request.getfixturevalue("postgres_template")
    name = f"mingora_bare_{secrets.token_hex(6)}"
    engine = sa.create_engine(template.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
        yield template.set(database=name).render_as_string(hide_password=False)
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Where the images of Docker tests (docker_images.py) are pulled from, by digest."""
    from docker_support import running_registry

    with running_registry(tmp_path_factory) as registry:
        yield registry
