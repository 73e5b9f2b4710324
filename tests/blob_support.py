"""What blobstore's tests share: a caller, and the service with what lies under it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flask import Flask
from flask.testing import FlaskClient
from support import FakeClock, Seed, bearer
from werkzeug.test import TestResponse

from mingora_blobstore.domain.objects import PART_SIZE
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.clock import DAY
from mingora_common.http import API_PREFIX

INTERNAL_KEY = "k" * 40


def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def code(answer: TestResponse) -> str:
    """The error's code."""
    assert answer.json is not None
    return str(answer.json["error"]["code"])


def pieces(data: bytes) -> list[bytes]:
    return [data[start : start + PART_SIZE] for start in range(0, len(data), PART_SIZE)]


class Answer(TestResponse):
    """A response whose JSON is taken as the test expects it."""

    json: Any


@dataclass
class Caller:
    """Calls with one token."""

    app: Flask
    token: str

    def call(self, method: str, path: str, **options: Any) -> Answer:
        headers = {**bearer(self.token), **options.pop("headers", {})}
        client: FlaskClient = self.app.test_client()
        return cast(Answer, client.open(API_PREFIX + path, method=method, headers=headers, **options))

    def open(self, data: bytes, kind: str = "input") -> Answer:
        return self.call("POST", "/objects", json={"size": len(data), "sha256": sha(data), "kind": kind})

    def put(self, object_id: str, index: int, data: bytes, **options: Any) -> Answer:
        headers = {"X-Content-SHA256": sha(data), **options.pop("headers", {})}
        return self.call("PUT", f"/objects/{object_id}/parts/{index}", data=data, headers=headers, **options)

    def complete(self, object_id: str) -> Answer:
        return self.call("POST", f"/objects/{object_id}/complete", data=b"")

    def store(self, data: bytes, kind: str = "input") -> str:
        """Send ``data`` whole; the complete object's id."""
        answer = self.open(data, kind)
        assert answer.status_code in (200, 201), answer.text
        object_id = str(answer.json["id"])
        if answer.json["state"] == "open":
            for index, piece in enumerate(pieces(data)):
                assert self.put(object_id, index, piece).status_code == 200
            assert self.complete(object_id).status_code == 200
        return object_id

    def state(self, object_id: str) -> str:
        return str(self.call("GET", f"/objects/{object_id}").json["state"])

    def usage(self) -> tuple[int, int]:
        usage = self.call("GET", "/objects").json["usage"]
        return usage["bytes"], usage["files"]


@dataclass
class Service:
    """The app with what lies under it."""

    app: Flask
    seed: Seed
    clock: FakeClock
    content: SqliteContent
    content_file: Path

    def caller(self, account_id: str) -> Caller:
        return Caller(self.app, self.seed.token(account_id, ttl=30 * DAY))

    def pin(self, owner: str, account_id: str, *refs: tuple[str, bytes], key: str = INTERNAL_KEY) -> Answer:
        objects = [{"id": object_id, "sha256": sha(data), "size": len(data)} for object_id, data in refs]
        body = {"owner": owner, "accountId": account_id, "objects": objects}
        answer = self.app.test_client().post("/internal/pins", json=body, headers={"X-Internal-Key": key})
        return cast(Answer, answer)

    def release(self, owner: str) -> Answer:
        headers = {"X-Internal-Key": INTERNAL_KEY}
        return cast(Answer, self.app.test_client().delete(f"/internal/pins/{owner}", headers=headers))

    def stored_bytes(self) -> int:
        """How many bytes of parts lie in the content file."""
        keys = [key for _, key in self.content.older(self.clock.now() + 1, 0, 1000)]
        return sum(size or 0 for size in self.content.sizes(keys))

    def sweep(self) -> dict[str, int]:
        swept: dict[str, int] = self.app.extensions["mingora_sweeper"].run_once()
        return swept
