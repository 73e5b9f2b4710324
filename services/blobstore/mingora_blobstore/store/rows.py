"""Statements over blobstore's tables that more than one use shares; each runs in its caller's transaction.

Lock order: whatever changes what an account has reserved, or touches several of its objects, first takes the
account's row of ``blob_usage`` (:func:`lock_account`). What touches one object only takes that object's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mingora_blobstore.domain.objects import CORRUPT, StoredObject
from mingora_common.db.schema import blob_usage, objects, parts, pins

# The most values in one IN list.
CHUNK = 1000

COLUMNS = tuple(objects.c[name] for name in StoredObject.__dataclass_fields__)
PINNED = sa.exists().where(pins.c.object_id == objects.c.id)

T = TypeVar("T")


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """``items`` in runs that fit one IN list."""
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def stored(row: Any) -> StoredObject:
    """A row of ``COLUMNS`` as an object."""
    return StoredObject(*row[: len(COLUMNS)])


def insert_new(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT with ``on_conflict_…``, which both engines have and SQLAlchemy keeps in their dialects."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def lock_account(connection: sa.Connection, account_id: str) -> tuple[int, int]:
    """Hold the account's usage row until the transaction ends: ``(bytes, files)`` reserved."""
    query = sa.select(blob_usage.c.bytes, blob_usage.c.files).where(blob_usage.c.account_id == account_id)
    row = connection.execute(query.with_for_update()).first()
    if row is None:
        fresh = insert_new(connection, blob_usage).values(account_id=account_id, bytes=0, files=0)
        connection.execute(fresh.on_conflict_do_nothing())
        row = connection.execute(query.with_for_update()).one()
    return int(row.bytes), int(row.files)


def reserve(connection: sa.Connection, account_id: str, size: int, files: int) -> None:
    """Add to what the locked account has reserved; negative numbers give back."""
    connection.execute(
        sa.update(blob_usage)
        .where(blob_usage.c.account_id == account_id)
        .values(bytes=blob_usage.c.bytes + size, files=blob_usage.c.files + files)
    )


def give_back(connection: sa.Connection, account_id: str, gone: Iterable[StoredObject]) -> None:
    """Return the reservations of objects that leave, or turn corrupt. A corrupt one has none any more."""
    held = [item.size for item in gone if item.state != CORRUPT]
    if held:
        reserve(connection, account_id, -sum(held), -len(held))


def remove(connection: sa.Connection, account_id: str, gone: Sequence[StoredObject]) -> None:
    """Delete the rows of ``gone``, which the transaction has read under the account's lock."""
    for chunk in chunks([item.id for item in gone]):
        connection.execute(sa.delete(parts).where(parts.c.object_id.in_(chunk)))
        connection.execute(sa.delete(objects).where(objects.c.id.in_(chunk)))
    give_back(connection, account_id, gone)
