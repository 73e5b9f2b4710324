from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mingora.client import Client
from mingora.transport import Transport
from mingora_fake import TOKEN, FakePlatform


@pytest.fixture
def platform() -> Iterator[FakePlatform]:
    with FakePlatform() as fake:
        yield fake


@pytest.fixture
def sleeps() -> list[float]:
    """How long the client wanted to sleep; it doesn't."""
    return []


@pytest.fixture
def transport(platform: FakePlatform, sleeps: list[float]) -> Iterator[Transport]:
    with Transport(platform.url, token=TOKEN, sleep=sleeps.append) as made:
        yield made


@pytest.fixture
def client(transport: Transport, sleeps: list[float]) -> Client:
    return Client(transport=transport, sleep=sleeps.append)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Makes a project folder of the given files around a valid job.json."""

    def make(**files: bytes) -> Path:
        root = tmp_path / "project"
        root.mkdir(exist_ok=True)
        (root / "job.json").write_text('{"schemaVersion": 1, "name": "n", "command": ["python3", "main.py"]}')
        for name, data in (files or {"main.py": b"print(1)\n"}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    return make
