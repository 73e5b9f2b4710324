"""Bringing a database to the schema of this code, and telling when the two don't fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event

from mingora_common.db.engine import BUSY_TIMEOUT_MS
from mingora_common.db.reach import engine_of, telling
from mingora_common.db.schema import metadata
from mingora_common.db.views import VIEWS

_ADVISORY_LOCK = 0x6D696E67  # one migration at a time on a server that several services share
_MIGRATIONS = Path(__file__).parent / "migrations"


class SchemaError(Exception):
    """The database is older or newer than this code; the message names the fix."""


def known() -> list[str]:
    """The revisions of this code, the newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_scripts()).walk_revisions()]


def head() -> str:
    """The revision of this code's schema."""
    return known()[0]


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the database at ``url`` to the newest schema, or up to an earlier ``revision``.

    Safe to call at every start, from several processes.

    Raises:
        SchemaError: the database was made by newer code, or holds something else.
    """
    with _alone(url) as connection:
        _refuse_newer(connection)
        _refuse_foreign(connection)
        command.upgrade(_config(connection), revision)
        connection.commit()


def downgrade(url: str, revision: str) -> None:
    """Take the database at ``url`` back to an earlier ``revision`` ("base": to nothing at all).

    Raises:
        SchemaError: the database was made by newer code: only that can take it back.
    """
    with _alone(url) as connection:
        _refuse_newer(connection)
        command.downgrade(_config(connection), revision)
        connection.commit()


def check(url: str) -> None:
    """Raise :class:`SchemaError` unless the database at ``url`` has exactly this code's schema."""
    with _connected(engine_of(url)) as connection:
        _refuse_newer(connection)
        if _current(connection) != head():
            _refuse_foreign(connection)
            raise SchemaError("The database is older than this code: run `mingora-admin migrate`.")
        _refuse_half(connection)


@contextmanager
def _alone(url: str) -> Iterator[sa.Connection]:
    """A connection that migrates while no other does, and all or nothing."""
    engine = engine_of(url)
    if engine.dialect.name == "sqlite":
        _whole_or_not_at_all(engine)
    with _connected(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _ADVISORY_LOCK})
            connection.commit()
        yield connection


@contextmanager
def _connected(engine: sa.Engine) -> Iterator[sa.Connection]:
    try:
        with telling(engine.url), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _whole_or_not_at_all(engine: sa.Engine) -> None:
    """SQLite can take changes of the schema back, but Python's driver commits each; one that is killed in the middle
    would leave a database that can be migrated neither on nor back."""

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is issued below, not by the driver
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _refuse_newer(connection: sa.Connection) -> None:
    current = _current(connection)
    if current is not None and current not in known():
        raise SchemaError(
            f"The database has schema {current}, which this code doesn't know: it was made by a newer Mingora. "
            "Upgrade the software, or restore a back-up of before its upgrade."
        )


def _refuse_foreign(connection: sa.Connection) -> None:
    """Tables without a revision are another program's, and migrating would mix the two."""
    tables = set(sa.inspect(connection).get_table_names()) - {"alembic_version"}
    connection.rollback()
    if tables and _current(connection) is None:
        raise SchemaError(
            f"The database holds tables that Mingora didn't make ({', '.join(sorted(tables)[:3])} …). Name a database "
            "of its own in DATABASE_URL, or restore a back-up."
        )


def _refuse_half(connection: sa.Connection) -> None:
    """The revision says that all is there: hold it against what is."""
    inspector = sa.inspect(connection)
    missing = set(metadata.tables) - set(inspector.get_table_names()) | set(VIEWS) - set(inspector.get_view_names())
    connection.rollback()
    if missing:
        raise SchemaError(
            f"The database says that it has schema {head()}, but lacks {', '.join(sorted(missing)[:3])}. It was "
            "changed by hand or restored in part: restore a whole back-up."
        )


def _current(connection: sa.Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    return revision


def _config(connection: sa.Connection) -> Config:
    config = _scripts()
    config.attributes["connection"] = connection
    return config


def _scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
