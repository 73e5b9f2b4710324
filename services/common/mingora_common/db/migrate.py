"""Bringing a database to the schema of this code, and telling when the two don't fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event

from mingora_common.db.engine import BUSY_TIMEOUT_MS

_ADVISORY_LOCK = 0x6D696E67  # one migration at a time on a server that several services share


class SchemaError(Exception):
    """The database is older or newer than this code; the message names the fix."""


def upgrade(url: str) -> None:
    """Migrate the database at ``url`` to the newest schema. Safe to call at every start, from several processes.

    Raises:
        SchemaError: the database was made by newer code.
    """
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        _whole_or_not_at_all(engine)
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _ADVISORY_LOCK})
                connection.commit()
            _refuse_newer(connection)
            command.upgrade(_config(connection), "head")
            connection.commit()
    finally:
        engine.dispose()


def check(url: str) -> None:
    """Raise :class:`SchemaError` unless the database at ``url`` has exactly this code's schema."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            _refuse_newer(connection)
            if _current(connection) != _script(connection).get_current_head():
                raise SchemaError("The database is older than this code: run `mingora-admin migrate`.")
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
    known = {script.revision for script in _script(connection).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaError(
            f"The database has schema {current}, which this code doesn't know: it was made by a newer Mingora. "
            "Upgrade the software, or restore a back-up of before its upgrade."
        )


def _current(connection: sa.Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    return revision


def _script(connection: sa.Connection) -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(connection))


def _config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
