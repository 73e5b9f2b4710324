"""Whatever happens to an account's objects in whatever order, its usage is the sum over them, and no byte is left."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sa
from blob_support import sha
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from support import FakeClock

from mingora_blobstore.domain import retention
from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, StoredObject
from mingora_blobstore.domain.openings import Wanted
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.openings import Opened, Openings
from mingora_blobstore.store.pins import StoredPins
from mingora_blobstore.store.reading import Reader
from mingora_blobstore.store.removal import Removal
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_blobstore.store.sweep import Sweeper
from mingora_blobstore.store.uploads import Uploads
from mingora_common.auth import Limits
from mingora_common.blobs import ObjectRef
from mingora_common.db import migrate
from mingora_common.db.engine import Database
from mingora_common.db.schema import objects, parts, pins
from mingora_common.errors import ServiceError

ACCOUNT = "acc_12345678"
LIMITS = Limits(max_file_bytes=40, max_bytes=60, max_files=4, max_jobs=0, max_nodes=0)
CONTENTS = [bytes([65 + number]) * (number * 9) for number in range(6)]
OWNERS = ["job_11111111", "att_22222222"]


class Accounting(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mingora-accounting-"))
        shutil.copyfile(self.template, self.folder / "platform.sqlite")
        self.clock = FakeClock()
        self.database = Database(f"sqlite:///{self.folder}/platform.sqlite", "blobstore")
        self.content = SqliteContent(str(self.folder / "content.sqlite"))
        self.objects = Objects(self.database)
        self.openings = Openings(self.database, self.clock)
        self.removal = Removal(self.database, self.content, self.clock)
        reader = Reader(self.database, self.content, self.removal)
        self.reader = reader
        self.uploads = Uploads(self.database, self.content, reader, self.removal, self.clock)
        self.pins = StoredPins(self.database, self.removal, self.clock)
        self.sweeper = Sweeper(self.database, self.content, self.removal, self.pins, self.clock)

    known = Bundle("known")

    @rule(target=known, data=st.sampled_from(CONTENTS), lie=st.booleans())
    def open(self, data: bytes, lie: bool) -> object:
        digest = sha(data + b"lie") if lie and data else sha(data)
        [answer] = self.openings.open(ACCOUNT, LIMITS, [Wanted(len(data), digest, "input")])
        return (answer.object.id, data) if isinstance(answer, Opened) else multiple()

    @rule(target=known, wanted=st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4))
    def open_batch(self, wanted: list[bytes]) -> object:
        answers = self.openings.open(ACCOUNT, LIMITS, [Wanted(len(data), sha(data), "result") for data in wanted])
        pairs = zip(answers, wanted, strict=True)
        return multiple(*((answer.object.id, data) for answer, data in pairs if isinstance(answer, Opened)))

    @rule(which=known)
    def put_and_complete(self, which: tuple[str, bytes]) -> None:
        self.put(which)
        self.complete(which)

    @rule(which=known)
    def put(self, which: tuple[str, bytes]) -> None:
        item, data = self.find(which[0]), which[1]
        if item and data:
            self.attempt(lambda: self.uploads.put(item, 0, sha(data), data))

    @rule(which=known)
    def complete(self, which: tuple[str, bytes]) -> None:
        item = self.find(which[0])
        if item:
            self.attempt(lambda: self.uploads.complete(item))

    @rule(which=known)
    def rot_and_read(self, which: tuple[str, bytes]) -> None:
        """Take the content away behind the service's back, then read."""
        item = self.find(which[0])
        if item and item.state == COMPLETE and item.size:
            self.content.delete_object(item.id, item.generation)
            with pytest.raises(ServiceError):
                self.reader.open(item, 0, item.size)
            found = self.find(item.id)
            assert found and found.state == CORRUPT

    @rule(which=known)
    def corrupt_stale(self, which: tuple[str, bytes]) -> None:
        """Marking twice, or by what an earlier read saw, gives nothing back twice."""
        item = self.find(which[0])
        if item and item.state != CORRUPT:
            self.removal.corrupt(item)
            self.removal.corrupt(item)

    @rule(which=known, owner=st.sampled_from(OWNERS))
    def pin(self, which: tuple[str, bytes], owner: str) -> None:
        item = self.find(which[0])
        if item:
            self.attempt(lambda: self.pins.pin(owner, ACCOUNT, [ObjectRef(item.id, item.sha256, item.size)]))

    @rule(owner=st.sampled_from(OWNERS))
    def release(self, owner: str) -> None:
        self.pins.release(owner)

    @rule(which=consumes(known))
    def delete(self, which: tuple[str, bytes]) -> None:
        self.attempt(lambda: self.removal.delete(ACCOUNT, which[0]))

    @rule(seconds=st.sampled_from([1, 3601, 50_000, 90_000]))
    def sweep(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.sweeper.run_once()

    @invariant()
    def usage_is_the_sum(self) -> None:
        with self.database.read() as connection:
            rows = connection.execute(sa.select(objects.c.size, objects.c.state)).all()
        held = [row.size for row in rows if row.state != CORRUPT]
        usage = self.objects.usage(ACCOUNT)
        assert (usage.bytes, usage.files) == (sum(held), len(held))
        assert usage.bytes <= LIMITS.max_bytes
        assert usage.files <= LIMITS.max_files

    @invariant()
    def content_and_rows_agree(self) -> None:
        with self.database.read() as connection:
            rows = connection.execute(sa.select(parts.c.object_id, parts.c.idx, parts.c.sha256))
            recorded = {(row.object_id, row.idx, row.sha256) for row in rows}
            held = set(connection.execute(sa.select(pins.c.object_id)).scalars())
            ids = set(connection.execute(sa.select(objects.c.id)).scalars())
        keys = [key for _, key in self.content.older(self.clock.now() + 1, 0, 100)]
        assert {(key.object_id, key.index, key.sha256) for key in keys} == recorded
        assert held <= ids
        assert {object_id for object_id, *_ in recorded} <= ids

    def teardown(self) -> None:
        self.clock.advance(retention.UNTOUCHED / 1000 * 3)
        for _ in range(2):
            self.sweeper.run_once()
        assert self.objects.usage(ACCOUNT).files == 0
        assert self.content.older(self.clock.now(), 0, 1) == []
        self.content.close()
        self.database.close()
        shutil.rmtree(self.folder)

    def find(self, object_id: str) -> StoredObject | None:
        try:
            return self.objects.find(ACCOUNT, object_id)
        except ServiceError:
            return None

    def attempt(self, action: object) -> None:
        """Run ``action``; a refusal is an outcome like any other."""
        assert callable(action)
        try:
            action()
        except ServiceError as error:
            assert error.kind.status < 500


@pytest.mark.req("BLOB-3", "BLOB-7")
def test_usage_is_always_the_sum_over_the_objects(tmp_path: Path) -> None:
    template = tmp_path / "template.sqlite"
    migrate.upgrade(f"sqlite:///{template}")
    with sqlite3.connect(template) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    machine = type("Machine", (Accounting,), {"template": template})
    machine.TestCase.settings = settings(  # type: ignore[attr-defined]
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a failing run is short; shrinking it takes minutes
    )
    machine.TestCase().runTest()  # type: ignore[attr-defined]
