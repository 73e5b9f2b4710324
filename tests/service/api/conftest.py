"""The api service through Flask's test client, on both engines, with pins and hints that are written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service.api.api_harness import QUICK, Api, LocalWaker
from support import FakeClock, RecordedHints, RecordedPins, Seed

from mingora_api.app import create_app
from mingora_api.config import Config
from mingora_api.domain.passwords import Passwords
from mingora_common.db.engine import Database
from mingora_common.db.schema import API
from mingora_common.wake import Waiters


@pytest.fixture
def api(database_url: str, seed: Seed, clock: FakeClock) -> Iterator[Api]:
    database, waiters = Database(database_url, API), Waiters(8)
    hints, pins, waker, passwords = RecordedHints(), RecordedPins(), LocalWaker(waiters), Passwords(QUICK)
    # There is no Redis at this address: sign-ins are counted in the process, as they are while Redis is away.
    config = Config(database_url, "unix:///nonexistent/redis.sock", "k" * 32, "http://127.0.0.1:1")
    app = create_app(
        config,
        database=database,
        clock=clock,
        hints=hints,
        pins=pins,
        waker=waker,
        waiters=waiters,
        passwords=passwords,
    )
    yield Api(app, app.test_client(), database, seed, clock, hints, pins, waker, waiters, passwords)
    database.close()


@pytest.fixture
def account(seed: Seed) -> str:
    return seed.account("ali")


@pytest.fixture
def token(seed: Seed, account: str) -> str:
    return seed.token(account)
