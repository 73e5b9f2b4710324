"""The sweep: removes what nobody holds any more. Idempotent, and safe in several processes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import sqlalchemy as sa
import structlog

from mingora_blobstore.domain import retention
from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, OPEN, PartKey
from mingora_blobstore.store.content import ContentStore
from mingora_blobstore.store.pins import StoredPins
from mingora_blobstore.store.removal import Removal
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects, parts, pins
from mingora_common.db.views import job_status

BATCH = 500

_log = structlog.get_logger()


class Sweeper:
    """One pass over everything that may have been left behind."""

    def __init__(
        self, database: Database, content: ContentStore, removal: Removal, held: StoredPins, clock: Clock
    ) -> None:
        self._database = database
        self._content = content
        self._removal = removal
        self._pins = held
        self._clock = clock

    def run_once(self) -> dict[str, int]:
        """Sweep; how many of each were removed (by this process or, at the same time, by another)."""
        now = self._clock.now()
        swept = {
            "pins": self._release_unknown_owners(now - retention.UNKNOWN_OWNER),
            "uploads": self._expire(OPEN, now - retention.UNTOUCHED),
            "objects": self._expire(COMPLETE, now - retention.UNTOUCHED),
            "corrupt": self._expire(CORRUPT, now - retention.CORRUPT_ROW),
            "orphans": self._remove_orphans(now - retention.ORPHAN_CONTENT),
        }
        self._content.compact()
        if any(swept.values()):
            _log.info("swept", **swept)
        return swept

    def _expire(self, state: str, touched_before: int) -> int:
        total = found = self._removal.expire(state, touched_before, BATCH)
        while found == BATCH:
            found = self._removal.expire(state, touched_before, BATCH)
            total += found
        return total

    def _release_unknown_owners(self, created_before: int) -> int:
        released, after = 0, ""
        while True:
            query = sa.select(pins.c.owner).where(pins.c.created_at < created_before, pins.c.owner > after)
            with self._database.read() as connection:
                owners = connection.execute(query.distinct().order_by(pins.c.owner).limit(BATCH)).scalars().all()
                unknown = set(owners) - _living(connection, owners)
            for owner in unknown:
                self._pins.release(owner, created_before)
            released += len(unknown)
            if len(owners) < BATCH:
                return released
            after = owners[-1]

    def _remove_orphans(self, stored_before: int) -> int:
        removed, after = 0, 0
        while True:
            found = self._content.older(stored_before, after, BATCH)
            with self._database.read() as connection:
                recorded = _recorded(connection, [key for _, key in found])
            for _, key in found:
                if key not in recorded:
                    removed += self._content.delete_older(key, stored_before)
            if len(found) < BATCH:
                return removed
            after = found[-1][0]


def _living(connection: sa.Connection, owners: Sequence[str]) -> set[str]:
    """Those of ``owners`` that are a job, or a job's latest attempt."""
    jobs = [owner for owner in owners if owner.startswith("job_")]
    attempts = [owner for owner in owners if owner.startswith("att_")]
    living: set[str] = set()
    for column, ids in ((job_status.c.job_id, jobs), (job_status.c.attempt_id, attempts)):
        living.update(connection.execute(sa.select(column).where(column.in_(ids))).scalars())
    return living


def _recorded(connection: sa.Connection, keys: Sequence[PartKey]) -> set[PartKey]:
    """Those of ``keys`` that a row names."""
    query = sa.select(objects.c.id, objects.c.generation, parts.c.idx, parts.c.sha256).join_from(
        objects, parts, parts.c.object_id == objects.c.id
    )
    named = sa.tuple_(parts.c.object_id, parts.c.idx).in_([(key.object_id, key.index) for key in keys])
    return {PartKey(*row) for row in connection.execute(query.where(named))}.intersection(keys)


class SweepTimer(threading.Thread):
    """Runs a sweep every so often for as long as the process lives; a sweep that fails is logged and tried again."""

    def __init__(self, sweep: Callable[[], object], seconds: float = retention.SWEEP_EVERY_SECONDS) -> None:
        super().__init__(name="blob-sweep", daemon=True)
        self._sweep = sweep
        self._seconds = seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._sweep()
            except Exception:  # noqa: BLE001 (whatever it was, the next sweep starts from what is there)
                _log.exception("sweep_failed")

    def stop(self) -> None:
        """Let the thread end after the sweep that runs, if one does."""
        self._stopping.set()
