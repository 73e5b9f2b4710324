"""Puts the three services together in one process: what compose does with containers."""

from __future__ import annotations

from collections.abc import Mapping

import mingora_api.app
import mingora_api.config
import mingora_blobstore.app
import mingora_blobstore.config
import mingora_scheduler.app
import mingora_scheduler.config
from mingora_api.domain.passwords import Passwords
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_blobstore.store.sweep import SweepTimer
from mingora_common.blobs import HttpPins
from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.hints import RedisHints
from mingora_common.metrics import Metrics
from mingora_common.serving import Served
from mingora_common.wake import Listener, RedisWaker, Waiters, connect
from mingora_stack.router import Router


def waiting_places(environ: Mapping[str, str]) -> int:
    """How many reads may wait at once, over all services."""
    configs = (mingora_api.config.Config, mingora_scheduler.config.Config)
    return sum(config.from_env(environ).max_waiters for config in configs)


def build(environ: Mapping[str, str]) -> Served:
    """Open databases and connections, start the listeners and the sweep. Call it in the process that serves.

    Raises:
        ConfigError: the environment doesn't make a usable configuration.
    """
    api_config = mingora_api.config.Config.from_env(environ)
    blobstore_config = mingora_blobstore.config.Config.from_env(environ)
    scheduler_config = mingora_scheduler.config.Config.from_env(environ)
    clock, metrics = SystemClock(), Metrics()
    client = connect(api_config.redis_url)
    hints, waker = RedisHints(client), RedisWaker(client)
    pins = HttpPins(api_config.blobstore_url, api_config.internal_key, api_config.internal_ca_file)
    # Workers' claims and heartbeats, and people who follow jobs: neither can take the others' places.
    reads, claims = Waiters(api_config.max_waiters), Waiters(scheduler_config.max_waiters)
    Listener(api_config.redis_url, reads, claims).start()

    api = mingora_api.app.create_app(
        api_config,
        database=Database(api_config.database_url, schema.API),
        clock=clock,
        hints=hints,
        pins=pins,
        waker=waker,
        waiters=reads,
        passwords=Passwords(),
        metrics=metrics,
    )
    blobstore = mingora_blobstore.app.create_app(
        blobstore_config,
        database=Database(blobstore_config.database_url, schema.BLOBSTORE),
        content=SqliteContent(blobstore_config.content_file),
        clock=clock,
        metrics=metrics,
    )
    scheduler = mingora_scheduler.app.create_app(
        scheduler_config,
        database=Database(scheduler_config.database_url, schema.SCHEDULER),
        clock=clock,
        hints=hints,
        pins=pins,
        waker=waker,
        waiters=claims,
        metrics=metrics,
    )
    SweepTimer(blobstore.extensions["mingora_sweeper"].run_once).start()
    return Served(Router({"api": api, "blobstore": blobstore, "scheduler": scheduler}), (reads, claims))
