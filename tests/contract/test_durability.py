"""What is acknowledged is on the disk: the settings of SQLite that make a commit outlast a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.db.engine import Database

FULL = 2  # PRAGMA synchronous: every commit waits for the disk


@pytest.mark.req("OPS-2", "BLOB-4")
def test_both_files_wait_for_the_disk(sqlite_url: str, tmp_path: Path) -> None:
    database = Database(sqlite_url, None)
    with database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    database.close()
    content = SqliteContent(str(tmp_path / "content.sqlite"))
    with content._connection() as raw:
        assert raw.execute("PRAGMA synchronous").fetchone()[0] == FULL
        assert raw.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
    content.close()
