"""A platform with something of everything in it, made by its own services, and ways to look at it from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from blob_support import INTERNAL_KEY, Caller, Service, random_bytes, sha
from scheduler_platform import Platform, Worker, make_platform
from support import FakeClock, RecordedHints, Seed

from mingora_blobstore.app import create_app
from mingora_blobstore.config import Config
from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.wake import Waiters

INPUT, RESULT = random_bytes(5_000_000, 1), random_bytes(70_000, 2)
LOG = "çıktı 输出 \x00\n".encode() + bytes(range(256))
ORPHAN = PartKey("obj_orphan00", 1, 0, sha(b"orphan"))


@dataclass
class Whole:
    """Scheduler and blobstore over one database and one content file."""

    url: str
    content_file: Path
    platform: Platform
    blobs: Service

    def dump(self) -> dict[str, list[Any]]:
        """Every row of every table, but for the audit's lines of moving."""
        rows = self.platform.dump()
        rows["audit"] = [row for row in rows["audit"] if not any("platform." in str(value) for value in row)]
        return rows


@dataclass
class Moved:
    """What must work again wherever the platform is moved to."""

    account: str
    user: Caller
    input_id: str
    result_id: str
    done: str
    running: str
    idle: Worker
    busy: Worker


class Moving(Seed):
    """Makes no account: the one that was moved is there."""

    def __init__(self, url: str, clock: FakeClock, moved: Moved) -> None:
        super().__init__(url, clock)
        self._moved = moved

    def account(self, *_: Any, **__: Any) -> str:
        return self._moved.account

    def token(self, *_: Any, **__: Any) -> str:
        return self._moved.user.token


@contextmanager
def whole(url: str, content_file: Path, clock: FakeClock, moved: Moved | None = None) -> Iterator[Whole]:
    """The services over a migrated database: a new one, or that of a platform that was moved there."""
    seed = Seed(url, clock) if moved is None else Moving(url, clock, moved)
    platform = make_platform(url, seed, clock, RecordedHints(), Waiters(8))
    database, content = Database(url, schema.BLOBSTORE), SqliteContent(str(content_file))
    config = Config(database_url=url, content_file=str(content_file), internal_key=INTERNAL_KEY)
    app = create_app(config, database=database, content=content, clock=clock)
    yield Whole(url, content_file, platform, Service(app, seed, clock, content, content_file))
    content.close()
    database.close()
    platform.database.close()
    seed.engine.dispose()


def fill(it: Whole) -> Moved:
    """A job that is done, one that runs, uploads in every state, tokens that live and that don't."""
    platform, blobs, seed = it.platform, it.blobs, it.platform.seed
    user = Caller(blobs.app, platform.user)
    input_id, result_id = user.store(INPUT), user.store(RESULT, "result")
    half = user.open(random_bytes(3_000_000, 3)).json["id"]
    assert user.put(half, 0, random_bytes(3_000_000, 3)[: 2 << 20]).status_code == 200
    user.store(b"")
    blobs.content.put(ORPHAN, b"orphan", platform.clock.now())
    entry = {
        "path": "ver'i/数据.bin",
        "objectId": input_id,
        "size": len(INPUT),
        "sha256": sha(INPUT),
        "executable": True,
    }
    busy, idle = platform.worker(1), platform.worker(2)
    done = seed.job(platform.account, "done", inputs=[entry], name="iş 任务 \"'")
    assert blobs.pin(done, platform.account, (input_id, INPUT)).status_code == 200
    platform.waiting(busy)
    busy.run()
    assert busy.log(0, LOG).status_code == 200
    results = [
        {"path": "out.bin", "objectId": result_id, "size": len(RESULT), "sha256": sha(RESULT), "executable": False}
    ]
    answer = busy.report(logBytes=len(LOG), results=results, usage={"cpuSeconds": 1.25, "maxMemoryMiB": 3.0})
    assert answer.status_code == 200, answer.text
    attempt = platform.status(done).attempt_id
    assert blobs.pin(attempt, platform.account, (result_id, RESULT)).status_code == 200
    running = seed.job(platform.account, "running")
    platform.waiting(busy)
    busy.run()
    seed.insert(schema.cancel_requests, job_id="job_gone0000", at=1, actor="x")
    seed.insert(schema.audit, at=5, actor="token:x", action="job.cancel", data={"a": [1, None, "ö"]})
    seed.revoke(seed.token(platform.account))
    return Moved(platform.account, user, input_id, result_id, done, running, idle, busy)


def rows_of(url: str, query: Any) -> list[Any]:
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return list(connection.execute(query).all())
    finally:
        engine.dispose()
