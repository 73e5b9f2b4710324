"""Opening the database: SQLite by default, PostgreSQL by its URL.

SQLite: WAL, ``synchronous=FULL`` (an acknowledged write is on the disk), ``BEGIN IMMEDIATE`` for writers, and a lock
file round each write transaction, because SQLite's own busy handler is unfair under load (4 s waits were measured,
49 ms with the lock file).

PostgreSQL: no JIT (compiling a statement cost 0.6 s where running it takes 2 ms); a lock isn't waited for longer than
on SQLite; a server that is gone is noticed in half a minute at most, also when it never says so.
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
from mingora_common.db.schema import WHOLE

BUSY_TIMEOUT_MS = 10_000
SNAPSHOT_ROWS = 32  # a row may be a megabyte of a log

# Two replicas of api and scheduler, blobstore and the task worker together stay under a server's usual 100.
SERVER_CONNECTIONS = 8
SERVER_CONNECTIONS_MORE = 6
# libpq's: seconds, but for tcp_user_timeout (milliseconds). The options are the server's.
SERVER_SETTINGS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "options": f"-c jit=off -c lock_timeout={BUSY_TIMEOUT_MS} -c idle_in_transaction_session_timeout=60000",
}


class ForeignWriteError(Exception):
    """A service tried to write a table that another service owns: a fault in the code."""


class Database:
    """The platform database as one service sees it.

    Args:
        url: an SQLAlchemy URL, ``sqlite:////path/file`` or ``postgresql+psycopg://…``.
        role: the service that writes; tables of other owners are refused. None only reads; ``schema.WHOLE`` writes all.
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
    def snapshot(self) -> Iterator[sa.Connection]:
        """A read transaction that sees the database as it is now for as long as the block lasts, on both engines.

        Rows come in small batches, so that a table of any size can be read.
        """
        engine = self._engine
        if not self.is_sqlite:
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with engine.begin() as connection:
            if not self.is_sqlite:
                connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(sa.text("SELECT version_num FROM alembic_version")).all()  # from here on it stands still
            yield connection.execution_options(yield_per=SNAPSHOT_ROWS)

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
        try:
            descriptor = os.open(self.url.database + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:  # a disk that became read-only, say: like any other database that can't be written
            raise sa.exc.OperationalError("lock", None, error) from error
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
    return sa.create_engine(
        url,
        pool_size=SERVER_CONNECTIONS,
        max_overflow=SERVER_CONNECTIONS_MORE,
        pool_timeout=30,
        pool_pre_ping=True,
        connect_args=SERVER_SETTINGS,
    )


def _write_guard(role: str | None) -> Callable[..., None]:
    def check(_connection: Any, statement: Any, *_rest: Any) -> None:
        if not isinstance(statement, (sa.Insert, sa.Update, sa.Delete)):
            return
        table = statement.table
        owner = table.info.get("owner") if isinstance(table, sa.Table) else None
        if owner is None or role not in (owner, WHOLE):
            raise ForeignWriteError(f"{role} may not write {getattr(table, 'name', table)}")

    return check
