"""Reading objects' rows: one, a page of an account's, and what a client is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from mingora_blobstore.domain.objects import COMPLETE, OPEN, StoredObject
from mingora_blobstore.store.rows import COLUMNS, chunks, stored
from mingora_common.db.engine import Database
from mingora_common.db.schema import blob_usage, objects, parts, pins
from mingora_common.errors import NOT_FOUND, ServiceError
from mingora_common.ids import is_id

# The most part indices that one answer lists. A client sends again what it isn't told of, which does no harm.
MAX_PRESENT = 20_000

# Built once: these run with every part.
_MINE = (objects.c.id == sa.bindparam("object"), objects.c.account_id == sa.bindparam("account"))
_OWN = sa.select(*COLUMNS).where(*_MINE)
_THE_PART = sa.and_(parts.c.object_id == objects.c.id, parts.c.idx == sa.bindparam("part"))
_WITH_PART = (
    sa.select(*COLUMNS, parts.c.sha256.label("held")).select_from(objects.outerjoin(parts, _THE_PART)).where(*_MINE)
)


@dataclass(frozen=True, slots=True)
class View:
    """An object with the parts that it has (in order) and whether a job holds it."""

    object: StoredObject
    present: Sequence[int]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What an account has reserved."""

    bytes: int
    files: int


class Objects:
    """Looks objects up by account: a foreign id is as unknown as one that never was."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, account_id: str, object_id: str) -> StoredObject:
        """One object; raises ``not_found``."""
        row = None
        if is_id("obj", object_id):
            with self._database.read() as connection:
                row = connection.execute(_OWN, {"object": object_id, "account": account_id}).first()
        if row is None:
            raise ServiceError(NOT_FOUND)
        return stored(row)

    def find_with_part(self, account_id: str, object_id: str, index: int) -> tuple[StoredObject, str | None]:
        """One object, and the digest of its part ``index`` where one is stored; raises ``not_found``."""
        row = None
        if is_id("obj", object_id):
            with self._database.read() as connection:
                values = {"object": object_id, "account": account_id, "part": index}
                row = connection.execute(_WITH_PART, values).first()
        if row is None:
            raise ServiceError(NOT_FOUND)
        return stored(row), row.held

    def views(self, items: Sequence[StoredObject]) -> list[View]:
        """What there is to tell of ``items``, in their order."""
        ids = [item.id for item in items]
        opened = [item.id for item in items if item.state == OPEN]
        held: set[str] = set()
        present: dict[str, list[int]] = {}
        left = MAX_PRESENT
        with self._database.read() as connection:
            for chunk in chunks(ids):
                query = sa.select(pins.c.object_id).where(pins.c.object_id.in_(chunk)).distinct()
                held.update(connection.execute(query).scalars())
            for chunk in chunks(opened):
                listing = sa.select(parts.c.object_id, parts.c.idx).where(parts.c.object_id.in_(chunk))
                for object_id, index in connection.execute(listing.order_by(*parts.primary_key).limit(left)):
                    present.setdefault(object_id, []).append(index)
                    left -= 1
        views = []
        for item in items:
            indices: Sequence[int] = present.get(item.id, ())
            if item.state == COMPLETE:
                indices = range(min(item.parts, left))
                left -= len(indices)
            views.append(View(item, indices, item.id in held))
        return views

    def page(
        self, account_id: str, *, limit: int, after: tuple[int, str] | None, sha256: str | None
    ) -> list[StoredObject]:
        """The account's objects, newest first; ``after`` is ``(created_at, id)`` of the last one seen."""
        query = sa.select(*COLUMNS).where(objects.c.account_id == account_id)
        if sha256 is not None:
            query = query.where(objects.c.sha256 == sha256)
        if after is not None:
            query = query.where(sa.tuple_(objects.c.created_at, objects.c.id) < sa.tuple_(*map(sa.literal, after)))
        query = query.order_by(objects.c.created_at.desc(), objects.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [stored(row) for row in connection.execute(query)]

    def usage(self, account_id: str) -> Usage:
        """What the account has reserved: the sum over its open and complete objects."""
        query = sa.select(blob_usage.c.bytes, blob_usage.c.files).where(blob_usage.c.account_id == account_id)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return Usage(row.bytes, row.files) if row else Usage(0, 0)

    def pinned_by(self, owner: str | None, object_id: str) -> bool:
        """Whether ``owner`` itself holds the object."""
        query = sa.select(sa.literal(1)).where(pins.c.owner == owner, pins.c.object_id == object_id)
        with self._database.read() as connection:
            return connection.execute(query).first() is not None
