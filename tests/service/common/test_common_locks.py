"""A lock file that can't be opened (the disk became read-only), and a full disk: writes are unavailable, told why."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask

from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.errors import UNAVAILABLE, ServiceError, storage_unavailable
from mingora_common.http import _as_service_error


@pytest.mark.req("OPS-2")
def test_a_platform_whose_lock_cant_be_opened_is_unavailable(sqlite_url: str) -> None:
    database = Database(sqlite_url, schema.API)
    try:
        lock = Path(f"{database.url.database}.lock")
        lock.unlink(missing_ok=True)
        lock.mkdir()
        with pytest.raises(sa.exc.OperationalError) as caught, database.write():
            pass
        with Flask("x").app_context():
            assert _as_service_error(caught.value).kind is UNAVAILABLE
        with database.read() as connection:
            assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    finally:
        database.close()


@pytest.mark.req("OPS-2", "BLOB-2")
def test_content_whose_lock_cant_be_opened_is_unavailable(tmp_path: Path) -> None:
    content = SqliteContent(str(tmp_path / "content"))
    key = PartKey("obj_1", 1, 0, "0" * 64)
    content.put(key, b"kept", 1)
    (tmp_path / "content.lock").unlink()
    (tmp_path / "content.lock").mkdir()
    with pytest.raises(ServiceError) as caught:
        content.put(key, b"more", 2)
    assert caught.value.kind is UNAVAILABLE
    assert content.read(key, 0, 10) == b"kept"
    content.close()


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("database or disk is full", True),
        ("[Errno 28] No space left on device", True),
        ("database is locked", False),
    ],
)
def test_a_full_disk_is_named(text: str, full: bool) -> None:
    said = storage_unavailable(OSError(text)).body()["error"]
    assert (said.get("reason") == "disk_full") == full
    assert ("disk is full" in said["message"]) == full
