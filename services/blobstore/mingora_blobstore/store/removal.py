"""Objects that leave or turn corrupt: rows and reservation in one transaction, bytes after it.

A crash in between leaves bytes without rows, which the sweep removes.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
import structlog

from mingora_blobstore.domain.objects import CORRUPT, StoredObject
from mingora_blobstore.store.content import ContentStore
from mingora_blobstore.store.rows import COLUMNS, PINNED, give_back, lock_account, remove, stored
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects, parts
from mingora_common.errors import NOT_FOUND, OBJECT_IN_USE, ServiceError
from mingora_common.ids import is_id

_log = structlog.get_logger()


class Removal:
    """Removes objects; each reservation is given back exactly once."""

    def __init__(self, database: Database, content: ContentStore, clock: Clock) -> None:
        self._database = database
        self._content = content
        self._clock = clock

    def delete(self, account_id: str, object_id: str) -> None:
        """Remove an object at its owner's wish; raises ``not_found`` or ``object_in_use``."""
        if not is_id("obj", object_id):
            raise ServiceError(NOT_FOUND)
        query = sa.select(*COLUMNS, PINNED).where(objects.c.id == object_id, objects.c.account_id == account_id)
        with self._database.write() as connection:
            lock_account(connection, account_id)
            row = connection.execute(query.with_for_update()).first()
            if row is None:
                raise ServiceError(NOT_FOUND)
            if row[-1]:
                raise ServiceError(OBJECT_IN_USE)
            gone = stored(row)
            remove(connection, account_id, [gone])
        self.drop_content([gone])

    def corrupt(self, item: StoredObject) -> None:
        """Mark this upload of an object corrupt, unless it has been already or isn't there any more."""
        with self._database.write() as connection:
            lock_account(connection, item.account_id)
            marked = connection.execute(
                sa.update(objects)
                .where(objects.c.id == item.id, objects.c.generation == item.generation, objects.c.state != CORRUPT)
                .values(state=CORRUPT, touched_at=self._clock.now())
            ).rowcount
            if marked:
                connection.execute(sa.delete(parts).where(parts.c.object_id == item.id))
                give_back(connection, item.account_id, [item])
        self.drop_content([item])

    def expire(self, state: str, touched_before: int, limit: int) -> int:
        """Remove up to ``limit`` objects in ``state`` that nobody holds nor touched since; how many were found."""
        stale = sa.and_(objects.c.state == state, objects.c.touched_at < touched_before, ~PINNED)
        with self._database.read() as connection:
            query = sa.select(objects.c.id, objects.c.account_id).where(stale)
            found = connection.execute(query.order_by(objects.c.touched_at).limit(limit)).all()
        by_account: dict[str, list[str]] = {}
        for object_id, account_id in found:
            by_account.setdefault(account_id, []).append(object_id)
        for account_id, ids in by_account.items():
            with self._database.write() as connection:
                lock_account(connection, account_id)
                again = sa.select(*COLUMNS).where(objects.c.id.in_(ids), stale).with_for_update(of=objects)
                gone = [stored(row) for row in connection.execute(again)]
                remove(connection, account_id, gone)
            self.drop_content(gone)
        return len(found)

    def drop_content(self, gone: Iterable[StoredObject]) -> None:
        """Remove the bytes of objects whose rows are gone. A failure is the sweep's to mend, not the caller's."""
        for item in gone:
            try:
                self._content.delete_object(item.id, item.generation)
            except ServiceError:
                _log.warning("content_left", object=item.id, generation=item.generation)
