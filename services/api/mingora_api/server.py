"""The command ``mingora-api``: the api service in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mingora_api.app import create_app
from mingora_api.config import Config
from mingora_api.domain.passwords import Passwords
from mingora_common import startup
from mingora_common.blobs import HttpPins
from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.hints import RedisHints
from mingora_common.serving import Served
from mingora_common.wake import Listener, RedisWaker, Waiters, connect


def build() -> Served:
    """Open the database and the connections, and start the listener for wake-ups."""
    config = Config.from_env(os.environ)
    client = connect(config.redis_url)
    waiters = Waiters(config.max_waiters)
    Listener(config.redis_url, waiters).start()
    app = create_app(
        config,
        database=Database(config.database_url, schema.API),
        clock=SystemClock(),
        hints=RedisHints(client),
        pins=HttpPins(config.blobstore_url, config.internal_key, config.internal_ca_file),
        waker=RedisWaker(client),
        waiters=waiters,
        passwords=Passwords(),
    )
    return Served(app, (waiters,))


def _waiting_places(environ: Mapping[str, str]) -> int:
    return Config.from_env(environ).max_waiters


def run() -> None:
    """Serve until SIGTERM."""
    startup.run("api", _waiting_places, build)


if __name__ == "__main__":
    run()
