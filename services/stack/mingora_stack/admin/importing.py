"""Fills an empty platform from an archive: all of it or nothing.

The archive is read twice. The first time nothing is written, so one that is cut off or altered changes nothing at all.
The second time bytes are stored, then rows, in one transaction that commits at the very end. Whatever comes between
(a full disk, a kill) leaves no row; bytes are taken back, or by blobstore's sweep if there was no time to. So an import
that ended early is simply run again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError

from mingora_api.store import audit
from mingora_api.store.accounts import DEFAULT_TENANT
from mingora_api.store.audit import Actor
from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.clock import Clock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.errors import ServiceError
from mingora_stack.admin import rows
from mingora_stack.admin.archive import ArchiveError, Part, Reader, Rows
from mingora_stack.admin.keyset import KeySet
from mingora_stack.admin.progress import Progress

# What an operator's and a stranger's steps leave in a platform that holds nothing yet.
FAILED_SIGN_IN = "signin.failed"


class ImportRefused(Exception):
    """Nothing was imported; the message names the fix."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in; ``lost_parts`` were lost already where the archive was made."""

    parts: int
    part_bytes: int
    rows: int
    lost_parts: int


def verify(stream: BinaryIO) -> None:
    """Read and check a whole archive.

    Raises:
        ArchiveError: it is cut off or altered.
        ImportRefused: it doesn't fit this code's schema.
    """
    progress = Progress("Checked")
    reader = Reader(stream)
    manifest = reader.manifest
    if manifest.get("tables") != rows.columns():
        raise ImportRefused(
            f"The archive was written by Mingora {manifest.get('software')} with schema {manifest.get('schema')}, "
            "which has other tables. Import it with that version, then upgrade."
        )
    for member in reader.members():
        if isinstance(member, Rows):
            _rows(member)
        progress.add(len(member.data) if isinstance(member, Part) else 0)


def _rows(member: Rows) -> tuple[sa.Table, list[dict[str, Any]]]:
    """A table and the rows to insert; raises ArchiveError when they aren't rows of a table."""
    table = rows.TABLES.get(member.table)
    try:
        if table is None:
            raise ValueError(f"there is no table {member.table}")
        return table, rows.values(table, member.rows)
    except ValueError as error:
        raise ArchiveError(f"The archive is damaged or altered: {error}.") from error


class Importer:
    """One run. ``database`` was opened as ``schema.WHOLE`` and has this code's schema; ``scratch`` is a folder that has
    room for temporary files."""

    def __init__(self, database: Database, content: SqliteContent, clock: Clock, actor: Actor, scratch: Path) -> None:
        self._scratch = scratch
        self._database = database
        self._content = content
        self._clock = clock
        self._actor = actor
        self._progress = Progress("Imported")

    def run(self, stream: BinaryIO) -> Imported:
        """Import a verified archive, from its beginning.

        Raises:
            ImportRefused: the platform isn't empty, or content was removed meanwhile.
            ArchiveError: the archive has changed since it was verified.
        """
        with KeySet(self._scratch) as stored:
            try:
                with self._database.write() as connection:
                    self._hold(connection)
                    return self._fill(connection, Reader(stream), stored)
            except BaseException:
                self._take_back(stored)
                raise

    def _hold(self, connection: sa.Connection) -> None:
        """Let nobody else begin to use the platform, and refuse one that is in use."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(sa.text("LOCK TABLE tenants, accounts, audit IN SHARE ROW EXCLUSIVE MODE"))
        for name, table in rows.TABLES.items():
            used = sa.select(sa.literal(1)).select_from(table).limit(1)
            if name == "tenants":
                used = used.where(table.c.name != DEFAULT_TENANT)
            if name == "audit":
                used = used.where(table.c.action != FAILED_SIGN_IN)
            if connection.execute(used).first() is not None:
                raise ImportRefused(
                    "This platform isn't empty, and an archive can't be mixed with what is there. Name an empty data "
                    "folder, or an empty database."
                )
        for table in (schema.tenants, schema.audit):
            connection.execute(sa.delete(table))

    def _fill(self, connection: sa.Connection, reader: Reader, stored: KeySet) -> Imported:
        for member in reader.members():
            if isinstance(member, Part):
                self._store(member, stored)
            else:
                self._insert(connection, member)
        end = reader.end
        lost = set(reader.lost)
        self._check_content(connection, lost)
        self._finish(connection, reader.manifest)
        return Imported(end["parts"], end["partBytes"], sum(end["rows"].values()), len(lost))

    def _store(self, part: Part, stored: KeySet) -> None:
        if self._content.sizes([part.key]) != [len(part.data)]:  # else an earlier import that was killed left it
            stored.add(part.key)
        self._content.put(part.key, part.data, self._clock.now())
        self._progress.add(len(part.data))

    def _insert(self, connection: sa.Connection, member: Rows) -> None:
        table, values = _rows(member)
        try:
            if values:
                connection.execute(sa.insert(table), values)
        except (IntegrityError, DataError) as error:
            raise ArchiveError(f"The archive is damaged or altered: {table.name} can't hold its rows.") from error

    def _check_content(self, connection: sa.Connection, lost: set[PartKey]) -> None:
        """Every part that a row names is there: a running blobstore's sweep may have taken what had no row yet."""
        after: tuple[str, int] | None = None
        while page := rows.part_page(connection, after):
            wanted = [(key, size) for key, size in page if key not in lost]
            if self._content.sizes([key for key, _ in wanted]) != [size for _, size in wanted]:
                raise ImportRefused("Content was removed while it came in. Stop the services, and import again.")
            after = (page[-1][0].object_id, page[-1][0].index)

    def _finish(self, connection: sa.Connection, manifest: dict[str, Any]) -> None:
        if connection.dialect.name == "postgresql":  # its counter knows nothing of rows that brought their number along
            newest = sa.select(sa.func.max(schema.audit.c.id)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence("audit", "id")
            connection.execute(sa.select(sa.func.setval(sequence, sa.func.coalesce(newest, 1))))
        now = self._clock.now()
        about = {name: manifest.get(name) for name in ("software", "exportedAt")}
        audit.record(connection, now, self._actor, "platform.import", **about)

    def _take_back(self, stored: KeySet) -> None:
        """Remove the bytes that this run has stored; what can't be removed now is the sweep's."""
        try:
            for key in stored:
                self._content.delete(key)
        except (ServiceError, sqlite3.Error):
            return


@contextmanager
def opened(url: str, content_file: Path) -> Iterator[tuple[Database, SqliteContent]]:
    """The platform to fill, and its content."""
    database = Database(url, schema.WHOLE)
    content = SqliteContent(str(content_file))
    try:
        yield database, content
    finally:
        content.close()
        database.close()
