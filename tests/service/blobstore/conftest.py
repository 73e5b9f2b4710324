"""Blobstore as a client sees it: Flask's test client over a content file and both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from blob_support import INTERNAL_KEY, Caller, Service
from support import FakeClock, Seed

from mingora_blobstore.app import create_app
from mingora_blobstore.config import Config
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.db.engine import Database


@pytest.fixture
def service(database_url: str, seed: Seed, clock: FakeClock, tmp_path: Path) -> Iterator[Service]:
    database = Database(database_url, "blobstore")
    path = tmp_path / "content.sqlite"
    content = SqliteContent(str(path))
    config = Config(database_url=database_url, content_file=str(path), internal_key=INTERNAL_KEY)
    app = create_app(config, database=database, content=content, clock=clock)
    yield Service(app, seed, clock, content, path)
    content.close()
    database.close()


@pytest.fixture
def account(seed: Seed) -> str:
    return seed.account()


@pytest.fixture
def user(service: Service, account: str) -> Caller:
    return service.caller(account)
