"""Content in an SQLite file of its own: large pages, a rollback journal, and no connection held between pieces.

Measured with 8 MiB of content: 64 KiB pages with a rollback journal write nearly twice as fast as WAL, which writes
everything twice. TRUNCATE syncs the emptied journal; DELETE wouldn't sync the folder, and an acknowledged part could
roll back at a power cut. A reader holds up a writer's commit only while it reads one piece.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.group import Group
from mingora_common import faults
from mingora_common.errors import storage_unavailable

PAGE_BYTES = 64 * 1024
# Parts that are sent at the same time are committed together, with one wait for the disk: that costs a third less.
PARTS_TOGETHER = 4
CACHE_KIB = 10 * 1024  # such a group and the pages round it, so that nothing spills before the commit
BUSY_SECONDS = 10.0
IDLE_CONNECTIONS = 4
DELETE_BATCH = 32
COMPACT_PAGES = 128

_SCHEMA = """
CREATE TABLE IF NOT EXISTS part (
    id INTEGER PRIMARY KEY, object_id TEXT NOT NULL, generation INTEGER NOT NULL, idx INTEGER NOT NULL,
    sha256 TEXT NOT NULL, stored_at INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS part_key ON part (object_id, generation, idx, sha256);
CREATE INDEX IF NOT EXISTS part_age ON part (id, stored_at, object_id, generation, idx, sha256);
"""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_KEY = "object_id = ? AND generation = ? AND idx = ? AND sha256 = ?"

_log = structlog.get_logger()


class SqliteContent:
    """The content file at ``path``, made with mode 600 if it isn't there. Safe in threads and processes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue(IDLE_CONNECTIONS)
        self._puts = Group(self._put_all, PARTS_TOGETHER)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with self._lock(), self._connection() as connection:
            if connection.execute("PRAGMA schema_version").fetchone() == (0,):
                # Only in a file that has nothing yet: they write, and so nothing could be read from a full disk.
                connection.executescript(f"PRAGMA page_size={PAGE_BYTES}; PRAGMA auto_vacuum=INCREMENTAL")
            connection.executescript(_SCHEMA)
        self.close()  # a server may fork after this, and a connection mustn't be shared by two processes

    def put(self, key: PartKey, data: bytes, now: int) -> None:
        self._puts.do((*_values(key), now, data))

    def sizes(self, keys: Sequence[PartKey]) -> list[int | None]:
        with self._connection() as connection, _snapshot(connection):
            rows = [
                connection.execute(f"SELECT length(data) FROM part WHERE {_KEY}", _values(key)).fetchone()  # noqa: S608
                for key in keys
            ]
        return [row and int(row[0]) for row in rows]

    def read(self, key: PartKey, offset: int, length: int) -> bytes | None:
        with self._connection() as connection, _snapshot(connection):
            row = connection.execute(f"SELECT id FROM part WHERE {_KEY}", _values(key)).fetchone()  # noqa: S608
            if row is None:
                return None
            with connection.blobopen("part", "data", row[0], readonly=True) as blob:
                blob.seek(min(offset, len(blob)))
                return blob.read(length)

    def delete(self, key: PartKey) -> None:
        with self._write() as connection:
            connection.execute(f"DELETE FROM part WHERE {_KEY}", _values(key))  # noqa: S608

    def delete_object(self, object_id: str, generation: int) -> None:
        gone = DELETE_BATCH
        while gone == DELETE_BATCH:
            with self._write() as connection:
                gone = connection.execute(
                    "DELETE FROM part WHERE id IN (SELECT id FROM part WHERE object_id = ? AND generation = ? LIMIT ?)",
                    (object_id, generation, DELETE_BATCH),
                ).rowcount

    def older(self, than: int, after: int, limit: int) -> list[tuple[int, PartKey]]:
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT id, object_id, generation, idx, sha256 FROM part INDEXED BY part_age "
                "WHERE id > ? AND stored_at < ? ORDER BY id LIMIT ?",
                (after, than, limit),
            ).fetchall()
        return [(row[0], PartKey(*row[1:])) for row in rows]

    def delete_older(self, key: PartKey, than: int) -> bool:
        with self._write() as connection:
            statement = f"DELETE FROM part WHERE {_KEY} AND stored_at < ?"  # noqa: S608
            return connection.execute(statement, (*_values(key), than)).rowcount == 1

    def compact(self) -> None:
        with self._connection() as connection:
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        for _ in range(0, free, COMPACT_PAGES):  # in steps, so that writers get their turn
            with self._lock(), self._connection() as connection:
                # The pragma yields a row a page, without columns: execute() would stop after the first.
                connection.executescript(f"PRAGMA incremental_vacuum({COMPACT_PAGES})")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While the block runs no part comes or goes; whoever wants to write waits. Reading goes on."""
        with self._lock():
            yield

    def ping(self) -> None:
        with self._connection() as connection:
            connection.execute("SELECT 1 FROM part LIMIT 1").fetchone()

    def close(self) -> None:
        """Close the idle connections."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _put_all(self, rows: Sequence[tuple[object, ...]]) -> Sequence[None]:
        with self._write() as connection:
            connection.executemany(
                "INSERT INTO part (object_id, generation, idx, sha256, stored_at, data) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (object_id, generation, idx, sha256) "
                "DO UPDATE SET stored_at = excluded.stored_at, data = excluded.data",
                rows,
            )
        return [None] * len(rows)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._lock(), self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            faults.point("content.before")
            connection.execute("COMMIT")
        faults.point("content.after")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of this block's own. One that saw an error is closed (which rolls back) and not used again.

        Whatever keeps the file from being read or written is ``unavailable``: a full disk, and damage too. That is the
        operator's to mend, from a copy perhaps, so nothing is recorded as lost because of it.
        """
        try:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        except sqlite3.DatabaseError as error:
            if (
                not isinstance(error, sqlite3.OperationalError)
                and getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE
            ):
                raise
            _log.error("content_unavailable", reason=str(error), code=getattr(error, "sqlite_errorname", None))
            raise storage_unavailable(error) from error
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=TRUNCATE", "synchronous=FULL", f"cache_size=-{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        return connection

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Writers queue here: SQLite's own busy handler is unfair under load."""
        try:
            descriptor = os.open(self._path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:  # a disk that became read-only, say
            _log.error("content_unavailable", reason=str(error))
            raise storage_unavailable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Reads that see one state: a row's number isn't another row's by the time its blob is opened."""
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


def _values(key: PartKey) -> tuple[str, int, int, str]:
    return key.object_id, key.generation, key.index, key.sha256
