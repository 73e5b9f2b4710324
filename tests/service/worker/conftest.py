"""A fake platform, and workers against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service.worker.fake_platform import FakePlatform
from service.worker.worker_process import StartWorker, WorkerProcess


@pytest.fixture
def platform() -> Iterator[FakePlatform]:
    fake = FakePlatform()
    yield fake
    fake.close()


@pytest.fixture
def start_worker(platform: FakePlatform, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts a worker on `tmp_path/root`; `token` False leaves the user's token out."""
    started: list[WorkerProcess] = []
    home = tmp_path / "home"
    home.mkdir()

    def start(*arguments: str, token: bool = True, env: dict[str, str] | None = None) -> WorkerProcess:
        environ = dict(env or {})
        if token:
            environ["MINGORA_TOKEN"] = platform.user_token
        worker = WorkerProcess(platform, tmp_path / "root", home, list(arguments), environ)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.close()
