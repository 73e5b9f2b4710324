"""Storing parts and completing objects.

A part's bytes are written durably first; then its row's primary key decides which sender's bytes are the part. So a
part that was acknowledged is on the disk and never changes, and a crash between the two leaves only bytes without a
row, which the sweep removes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, OPEN, PartKey, StoredObject
from mingora_blobstore.domain.uploads import refusal
from mingora_blobstore.store.content import ContentStore
from mingora_blobstore.store.group import Group
from mingora_blobstore.store.reading import Reader
from mingora_blobstore.store.removal import Removal
from mingora_blobstore.store.rows import insert_new
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects, parts
from mingora_common.errors import (
    DIGEST_MISMATCH,
    NOT_FOUND,
    OBJECT_CORRUPT,
    OBJECT_INCOMPLETE,
    ErrorKind,
    ServiceError,
)

MAX_MISSING = 100
# Parts that are recorded in one transaction: as many as are sent at the same time, usually.
RECORDS_TOGETHER = 16

# Built once: it runs with every part.
_TOUCH = (
    sa.update(objects)
    .where(
        objects.c.id == sa.bindparam("object"),
        objects.c.generation == sa.bindparam("upload"),
        objects.c.state == OPEN,
    )
    .values(touched_at=sa.bindparam("now"))
)


class Uploads:
    """One object's way from open to complete."""

    def __init__(
        self, database: Database, content: ContentStore, reader: Reader, removal: Removal, clock: Clock
    ) -> None:
        self._database = database
        self._content = content
        self._reader = reader
        self._removal = removal
        self._clock = clock
        # On PostgreSQL, writers don't wait for one another, and one that holds several objects' rows could deadlock.
        group = Group(self._record_all, RECORDS_TOGETHER)
        self._record: Callable[[tuple[PartKey, int]], ErrorKind | None] = (
            group.do if database.is_sqlite else lambda stored: self._record_all([stored])[0]
        )

    def put(self, item: StoredObject, index: int, sha256: str, data: bytes) -> None:
        """Store part ``index``; ``data`` has been held against ``sha256`` and has the part's exact size.

        Raises:
            ServiceError: ``part_conflict`` or ``object_frozen`` (other bytes are stored), ``object_corrupt``,
                ``not_found`` (the object was deleted meanwhile). Nothing is changed then.
        """
        key = PartKey(item.id, item.generation, index, sha256)
        self._content.put(key, data, self._clock.now())
        kind = self._record((key, len(data)))
        if kind is not None:
            self._content.delete(key)
            raise ServiceError(kind)

    def complete_if_whole(self, item: StoredObject) -> str:
        """Complete the object when no part is missing; the state it is in then. Raises like :meth:`complete`."""
        with self._database.read() as connection:
            whole = _present(connection, item.id)[0] == item.parts
        if whole:
            self.complete(item)
        return COMPLETE if whole else OPEN

    def complete(self, item: StoredObject) -> None:
        """Freeze the object after re-computing its digest from what is stored. Idempotent.

        Raises:
            ServiceError: ``object_incomplete`` with the first missing parts, ``digest_mismatch`` (the object is
                corrupt from now on), ``object_corrupt`` (it was before), ``not_found`` (deleted meanwhile).
        """
        if item.state == COMPLETE:
            return
        if item.state == CORRUPT:
            raise ServiceError(OBJECT_CORRUPT)
        with self._database.read() as connection:
            count, total = _present(connection, item.id)
            missing = _missing(connection, item) if count < item.parts else []
        if missing:
            raise ServiceError(OBJECT_INCOMPLETE, missing=missing)
        if total != item.size or self._reader.digest(item) != item.sha256:
            self._mismatch(item)
        self._freeze(item)

    def _record_all(self, stored: Sequence[tuple[PartKey, int]]) -> list[ErrorKind | None]:
        """Make each key, with its bytes, the part unless there is one; why that can't be, or None."""
        now = self._clock.now()
        with self._database.write() as connection:
            return [_record(connection, key, size, now) for key, size in stored]

    def _freeze(self, item: StoredObject) -> None:
        now = self._clock.now()
        with self._database.write() as connection:
            connection.execute(
                sa.update(objects)
                .where(objects.c.id == item.id, objects.c.generation == item.generation, objects.c.state == OPEN)
                .values(state=COMPLETE, completed_at=now, touched_at=now)
            )
            state = _state(connection, item.id, item.generation)
        if state != COMPLETE:
            raise ServiceError(NOT_FOUND if state is None else OBJECT_CORRUPT)

    def _mismatch(self, item: StoredObject) -> None:
        """The bytes that were read aren't the object's. Unless it was deleted under the reading, it is corrupt."""
        with self._database.read() as connection:
            state = _state(connection, item.id, item.generation)
        if state is None:
            raise ServiceError(NOT_FOUND)
        self._removal.corrupt(item)
        raise ServiceError(DIGEST_MISMATCH)


def _record(connection: sa.Connection, key: PartKey, size: int, now: int) -> ErrorKind | None:
    open_object = {"object": key.object_id, "upload": key.generation, "now": now}
    if connection.execute(_TOUCH, open_object).rowcount:
        part = {"object_id": key.object_id, "idx": key.index, "size": size, "sha256": key.sha256}
        fresh = insert_new(connection, parts).on_conflict_do_nothing()
        if connection.execute(fresh, part | {"stored_at": now}).rowcount == 1:
            return None
    state = _state(connection, key.object_id, key.generation)
    held = _part_digest(connection, key.object_id, key.index)
    return NOT_FOUND if state is None else refusal(state, held, key.sha256)


def _state(connection: sa.Connection, object_id: str, generation: int) -> str | None:
    """The state of this upload of an object; None when the object is gone, corrupt when a later upload runs."""
    query = sa.select(objects.c.state, objects.c.generation).where(objects.c.id == object_id)
    row = connection.execute(query).first()
    if row is None:
        return None
    return str(row.state) if row.generation == generation else CORRUPT


def _part_digest(connection: sa.Connection, object_id: str, index: int) -> str | None:
    query = sa.select(parts.c.sha256).where(parts.c.object_id == object_id, parts.c.idx == index)
    return connection.execute(query).scalar_one_or_none()


def _present(connection: sa.Connection, object_id: str) -> tuple[int, int]:
    """How many parts are stored, and their bytes."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(parts.c.size), 0))
    count, total = connection.execute(query.where(parts.c.object_id == object_id)).one()
    return int(count), int(total)


def _missing(connection: sa.Connection, item: StoredObject) -> list[int]:
    """The first ``MAX_MISSING`` indices without a part."""
    query = sa.select(parts.c.idx).where(parts.c.object_id == item.id).order_by(parts.c.idx)
    missing: list[int] = []
    expected = 0
    for index in [*connection.execute(query).scalars(), item.parts]:
        missing.extend(range(expected, min(index, expected + MAX_MISSING)))
        expected = index + 1
        if len(missing) >= MAX_MISSING:
            break
    return missing[:MAX_MISSING]
