"""Holds docs/openapi/*.json to the routes: ``python -m devtools.openapi [--fix]``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flask import Flask

import mingora_api.app
import mingora_blobstore.app
import mingora_scheduler.app
from devtools.venv import ROOT
from mingora_api.config import Config as ApiConfig
from mingora_api.domain.passwords import Passwords
from mingora_blobstore.config import Config as BlobstoreConfig
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.blobs import HttpPins
from mingora_common.clock import SystemClock
from mingora_common.db.engine import Database
from mingora_common.hints import RedisHints
from mingora_common.openapi import document
from mingora_common.wake import RedisWaker, Waiters, connect
from mingora_scheduler.config import Config as SchedulerConfig

FOLDER = ROOT / "docs" / "openapi"
_NOWHERE = "unix:///nowhere/redis.sock"
_DATABASE = "sqlite:////nowhere/platform.sqlite"
_URL = "http://127.0.0.1:1"


def apps(folder: Path) -> Mapping[str, Flask]:
    """The three services, connected to nothing but an empty content file in ``folder``."""
    key, content_file = "no key at all", str(folder / "content.sqlite")
    database, clock, client = Database(_DATABASE, None), SystemClock(), connect(_NOWHERE)
    shared: dict[str, Any] = {
        "database": database,
        "clock": clock,
        "hints": RedisHints(client),
        "pins": HttpPins(_URL, key),
        "waker": RedisWaker(client),
    }
    return {
        "api": mingora_api.app.create_app(
            ApiConfig(_DATABASE, _NOWHERE, key, _URL), waiters=Waiters(0), passwords=Passwords(), **shared
        ),
        "blobstore": mingora_blobstore.app.create_app(
            BlobstoreConfig(_DATABASE, content_file, key),
            database=database,
            content=SqliteContent(content_file),
            clock=clock,
        ),
        "scheduler": mingora_scheduler.app.create_app(
            SchedulerConfig(_DATABASE, _NOWHERE, key, _URL), waiters=Waiters(0), **shared
        ),
    }


def texts() -> dict[str, str]:
    """Each service's document as it stands in docs/openapi."""
    with tempfile.TemporaryDirectory() as folder:
        found = {service: document(app, service) for service, app in apps(Path(folder)).items()}
    return {name: json.dumps(found[name], ensure_ascii=False, indent=1, sort_keys=True) + "\n" for name in found}


def main(fix: bool) -> int:
    """0 when the documents are up to date; with ``fix`` they are written first."""
    stale = []
    for service, text in texts().items():
        path = FOLDER / f"{service}.json"
        if fix:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    for name in stale:
        print(f"{name} isn't what the routes say.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--fix" in sys.argv[1:]))
