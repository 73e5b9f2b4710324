"""Opening the database: SQLite by default, PostgreSQL by its URL.

SQLite: WAL, ``synchronous=FULL`` (an acknowledged write is on the disk), ``BEGIN IMMEDIATE`` for writers, and a lock
file round each write transaction, because SQLite's own busy handler is unfair under load (4 s waits were measured,
49 ms with the lock file).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from mingora_common import faults

BUSY_TIMEOUT_MS = 10_000


class ForeignWriteError(Exception):
    """A service tried to write a table that another service owns: a fault in the code."""


class Database:
    """The platform database as one service sees it.

    Args:
        url: an SQLAlchemy URL, ``sqlite:////path/file`` or ``postgresql+psycopg://…``.
        role: the service that writes; tables of other owners are refused. None only reads.
    """

    def __init__(self, url: str, role: str | None) -> None:
        self.url = sa.make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = _sqlite_engine(self.url) if self.is_sqlite else _server_engine(self.url)
        self._writers = self._engine.execution_options(mingora_write=True)
        event.listen(self._engine, "before_execute", _write_guard(role))

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read transaction: one consistent snapshot on SQLite, read committed on PostgreSQL."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A write transaction, committed when the block ends and rolled back when it raises."""
        with self._write_lock(), self._writers.begin() as connection:
            yield connection
            faults.point("commit.before")
        faults.point("commit.after")

    def ping(self) -> None:
        """Raise when the database can't be reached."""
        with self.read() as connection:
            connection.execute(sa.text("SELECT 1"))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        if not self.is_sqlite or not self.url.database:
            yield
            return
        descriptor = os.open(self.url.database + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, pool_size=16, max_overflow=512, pool_timeout=30)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's begin event below issues BEGIN, not the driver
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writing = connection.get_execution_options().get("mingora_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _server_engine(url: sa.URL) -> sa.Engine:
    return sa.create_engine(url, pool_size=16, max_overflow=32, pool_timeout=30, pool_pre_ping=True)


def _write_guard(role: str | None) -> Callable[..., None]:
    def check(_connection: Any, statement: Any, *_rest: Any) -> None:
        if not isinstance(statement, (sa.Insert, sa.Update, sa.Delete)):
            return
        table = statement.table
        owner = table.info.get("owner") if isinstance(table, sa.Table) else None
        if owner is None or owner != role:
            raise ForeignWriteError(f"{role} may not write {getattr(table, 'name', table)}")

    return check
