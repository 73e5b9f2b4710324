"""Opening objects: new ones reserve their bytes and a file, known ones are found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import sqlalchemy as sa

from mingora_blobstore.domain.objects import CORRUPT, OPEN, PART_SIZE, StoredObject
from mingora_blobstore.domain.openings import Room, Wanted
from mingora_blobstore.store.rows import COLUMNS, lock_account, reserve, stored
from mingora_common.auth import Limits
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects
from mingora_common.errors import ServiceError
from mingora_common.ids import new_id

BACKEND = "sqlite"


@dataclass(frozen=True, slots=True)
class Opened:
    """The object of some content; ``fresh`` when this opening made it or opened it anew."""

    object: StoredObject
    fresh: bool


class Openings:
    """The same content in one account is one object: its digest and size find it again, in any state."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def open(self, account_id: str, limits: Limits, wanted: Sequence[Wanted]) -> list[Opened | ServiceError]:
        """Open up to 1,000 objects in one transaction; an answer each, in order, a refusal among them."""
        now = self._clock.now()
        with self._database.write() as connection:
            room = Room(*lock_account(connection, account_id), limits)
            batch = _Batch(account_id, now, _known(connection, account_id, wanted))
            answers = [batch.decide(item, room) for item in wanted]
            _save(connection, batch, now)
            reserve(connection, account_id, room.taken_bytes, room.taken_files)
        return answers


class _Batch:
    """Decides openings one after the other, each knowing those before it; collects what is to be written."""

    def __init__(self, account_id: str, now: int, known: dict[tuple[str, int], StoredObject]) -> None:
        self._account_id, self._now, self._known = account_id, now, known
        self.made: list[StoredObject] = []
        self.reopened: list[StoredObject] = []
        self.touched: list[str] = []

    def decide(self, wanted: Wanted, room: Room) -> Opened | ServiceError:
        current = self._known.get(wanted.key)
        if current is not None and current.state != CORRUPT:
            self.touched.append(current.id)
            return Opened(current, fresh=False)
        try:
            room.take(wanted.size)
        except ServiceError as refusal:
            return refusal
        if current is None:
            item = self._new(wanted)
            self.made.append(item)
        else:
            item = replace(current, state=OPEN, generation=current.generation + 1, completed_at=None)
            self.reopened.append(item)
        self._known[wanted.key] = item
        return Opened(item, fresh=True)

    def _new(self, wanted: Wanted) -> StoredObject:
        return StoredObject(
            id=new_id("obj"), account_id=self._account_id, kind=wanted.kind, size=wanted.size, sha256=wanted.sha256,
            part_size=PART_SIZE, state=OPEN, generation=1, created_at=self._now, touched_at=self._now,
            completed_at=None,
        )  # fmt: skip


def _known(connection: sa.Connection, account_id: str, wanted: Sequence[Wanted]) -> dict[tuple[str, int], StoredObject]:
    digests = {item.sha256 for item in wanted}
    query = sa.select(*COLUMNS).where(objects.c.account_id == account_id, objects.c.sha256.in_(digests))
    found = (stored(row) for row in connection.execute(query))
    return {(item.sha256, item.size): item for item in found}


def _save(connection: sa.Connection, batch: _Batch, now: int) -> None:
    if batch.made:
        connection.execute(sa.insert(objects), [{**asdict(item), "backend": BACKEND} for item in batch.made])
    for item in batch.reopened:
        anew = {"state": OPEN, "generation": item.generation, "completed_at": None, "touched_at": now}
        connection.execute(sa.update(objects).where(objects.c.id == item.id).values(anew))
    if batch.touched:  # keeps the sweep away while the client goes on to send, or to name them in a job
        connection.execute(sa.update(objects).where(objects.c.id.in_(batch.touched)).values(touched_at=now))
