"""The command ``mingora-blobstore``: the blobstore service in a process of its own, and its sweeps beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mingora_blobstore.app import create_app
from mingora_blobstore.config import Config
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_blobstore.store.sweep import SweepTimer
from mingora_common import startup
from mingora_common.clock import SystemClock
from mingora_common.config import ConfigError
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.errors import ServiceError
from mingora_common.serving import Served


def build() -> Served:
    """Open the database and the content, and start the sweep."""
    config = Config.from_env(os.environ)
    app = create_app(
        config,
        database=Database(config.database_url, schema.BLOBSTORE),
        content=SqliteContent(config.content_file),
        clock=SystemClock(),
    )
    SweepTimer(app.extensions["mingora_sweeper"].run_once).start()
    return Served(app)


def check_content(path: str) -> None:
    """Raise ``ConfigError``, which names the fix, when the content file can't be used or made."""
    try:
        SqliteContent(path).ping()
    except ServiceError as error:
        raise ConfigError(
            f"The content file {path} can't be used: {error.__cause__}. Check its owner and the disk's space; if it is "
            "damaged, restore a back-up"
        ) from error
    except OSError as error:
        raise ConfigError(f"The content file {path} (MINGORA_CONTENT_FILE) can't be used: {error.strerror}") from error


def _waiting_places(environ: Mapping[str, str]) -> int:
    check_content(Config.from_env(environ).content_file)
    return 0  # blobstore has no waiting reads


def run() -> None:
    """Serve until SIGTERM."""
    startup.run("blobstore", _waiting_places, build)


if __name__ == "__main__":
    run()
