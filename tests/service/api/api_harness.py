"""The api service under test: its app, its parts, and short ways to call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from argon2 import PasswordHasher
from flask import Flask
from flask.testing import FlaskClient
from support import FakeClock, RecordedHints, RecordedPins, Seed, bearer
from werkzeug.test import TestResponse

from mingora_api.domain.passwords import Passwords
from mingora_common.db.engine import Database
from mingora_common.wake import Waiters

PREFIX = "/api/research/v1"
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@dataclass
class LocalWaker:
    """Wakes the waiters of this process and remembers the topics."""

    waiters: Waiters
    woken: list[str] = field(default_factory=list)

    def wake(self, topics: Any) -> None:
        topics = list(topics)
        self.woken.extend(topics)
        self.waiters.wake(topics)


@dataclass
class Api:
    """The app under test and all that it was made of."""

    app: Flask
    client: FlaskClient
    database: Database
    seed: Seed
    clock: FakeClock
    hints: RecordedHints
    pins: RecordedPins
    waker: LocalWaker
    waiters: Waiters
    passwords: Passwords

    def call(self, method: str, path: str, token: str | None = None, **options: Any) -> TestResponse:
        headers = {**(bearer(token) if token else {}), **options.pop("headers", {})}
        return self.client.open(PREFIX + path, method=method, headers=headers, **options)

    def submit(self, token: str, key: str = "k", spec: Any = None, inputs: Any = ()) -> TestResponse:
        body = {"spec": SPEC if spec is None else spec, "inputs": list(inputs)}
        return self.call("POST", "/jobs", token, json=body, headers={"Idempotency-Key": key})


SPEC = {"schemaVersion": 1, "name": "özet 摘要", "command": ["python", "main.py"]}


def entry(path: str = "main.py", **changes: Any) -> dict[str, Any]:
    """A file entry."""
    return {"path": path, "objectId": "obj_12345678", "size": 3, "sha256": "a" * 64, "executable": False, **changes}
