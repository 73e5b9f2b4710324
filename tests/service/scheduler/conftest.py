"""Time moves by hand, and tasks run when called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scheduler_platform import Platform, Worker, make_platform
from support import FakeClock, RecordedHints, Seed

from mingora_common.wake import Waiters


@pytest.fixture
def platform(database_url: str, seed: Seed, clock: FakeClock) -> Iterator[Platform]:
    platform = make_platform(database_url, seed, clock, RecordedHints(), Waiters(8))
    yield platform
    platform.database.close()


@pytest.fixture
def worker(platform: Platform) -> Worker:
    return platform.worker()
