"""Pins: what a job or an attempt holds. ``Pins`` of mingora_common.blobs, at its source."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from mingora_blobstore.domain.objects import COMPLETE, OPEN, StoredObject
from mingora_blobstore.store.removal import Removal
from mingora_blobstore.store.rows import COLUMNS, PINNED, chunks, insert_new, lock_account, remove, stored
from mingora_common.blobs import ObjectRef
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects, pins
from mingora_common.errors import INPUT_MISSING, ServiceError

# The most ids that a refusal names.
MAX_NAMED = 1000


class StoredPins:
    """Holds objects and lets them go. Both idempotent."""

    def __init__(self, database: Database, removal: Removal, clock: Clock) -> None:
        self._database = database
        self._removal = removal
        self._clock = clock

    def pin(self, owner: str, account_id: str, objects: Sequence[ObjectRef]) -> int:
        """Hold all of ``objects`` or none; how many there are. Raises ``input_missing`` with ``objectIds``."""
        now = self._clock.now()
        ids = sorted({ref.id for ref in objects})
        with self._database.write() as connection:
            lock_account(connection, account_id)
            found = _complete(connection, account_id, ids)
            missing = {ref.id for ref in objects if found.get(ref.id) != (ref.sha256, ref.size)}
            if missing:
                raise ServiceError(INPUT_MISSING, objectIds=sorted(missing)[:MAX_NAMED])
            for chunk in chunks(ids):
                rows = [
                    {"owner": owner, "object_id": object_id, "account_id": account_id, "created_at": now}
                    for object_id in chunk
                ]
                # A pin that is there counts from now: the sweep mustn't take it from a job that is just being made.
                held = insert_new(connection, pins).on_conflict_do_update(
                    index_elements=list(pins.primary_key), set_={"created_at": now}
                )
                connection.execute(held, rows)
        return len(ids)

    def release(self, owner: str, created_before: int | None = None) -> None:
        """Let go of what ``owner`` holds (only pins older than a time, if given); what nobody holds then is removed."""
        let_go = pins.c.owner == owner
        if created_before is not None:
            let_go = sa.and_(let_go, pins.c.created_at < created_before)
        with self._database.read() as connection:
            accounts = connection.execute(sa.select(pins.c.account_id).where(let_go).distinct()).scalars().all()
        for account_id in accounts:
            with self._database.write() as connection:
                lock_account(connection, account_id)
                statement = sa.delete(pins).where(let_go, pins.c.account_id == account_id)
                ids = connection.execute(statement.returning(pins.c.object_id)).scalars().all()
                gone = _unheld(connection, ids)
                remove(connection, account_id, gone)
            self._removal.drop_content(gone)


def _complete(connection: sa.Connection, account_id: str, ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Digest and size of those of ``ids`` that are the account's and complete, held until the transaction ends."""
    found: dict[str, tuple[str, int]] = {}
    for chunk in chunks(ids):
        query = sa.select(objects.c.id, objects.c.sha256, objects.c.size).where(
            objects.c.id.in_(chunk), objects.c.account_id == account_id, objects.c.state == COMPLETE
        )
        rows = connection.execute(query.order_by(objects.c.id).with_for_update())
        found.update({row.id: (row.sha256, row.size) for row in rows})
    return found


def _unheld(connection: sa.Connection, ids: Sequence[str]) -> list[StoredObject]:
    """Those of ``ids`` without a pin. An upload that runs anew is left to its sender, and to the sweep."""
    gone: list[StoredObject] = []
    for chunk in chunks(ids):
        query = sa.select(*COLUMNS).where(objects.c.id.in_(chunk), objects.c.state != OPEN, ~PINNED)
        gone += [stored(row) for row in connection.execute(query.order_by(objects.c.id).with_for_update(of=objects))]
    return gone
