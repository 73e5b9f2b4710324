"""The one place where blobstore is put together."""

from __future__ import annotations

from flask import Flask

from mingora_blobstore.config import Config
from mingora_blobstore.routes import content as content_routes
from mingora_blobstore.routes import objects as object_routes
from mingora_blobstore.routes import parts
from mingora_blobstore.routes import pins as pin_routes
from mingora_blobstore.store.content import ContentStore
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.openings import Openings
from mingora_blobstore.store.pins import StoredPins
from mingora_blobstore.store.reading import Reader
from mingora_blobstore.store.removal import Removal
from mingora_blobstore.store.sweep import Sweeper
from mingora_blobstore.store.uploads import Uploads
from mingora_common import health
from mingora_common.auth import TokenReader
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.http import API_PREFIX, make_app
from mingora_common.metrics import Metrics


def create_app(
    config: Config, *, database: Database, content: ContentStore, clock: Clock, metrics: Metrics | None = None
) -> Flask:
    """The WSGI app. ``database`` has the role ``blobstore``; ``metrics`` are the process's, where it serves more apps.

    ``app.extensions["mingora_sweeper"]`` is the :class:`Sweeper`; the process that wants sweeps starts a
    :class:`~mingora_blobstore.store.sweep.SweepTimer` over its ``run_once``. ``/internal/pins`` lies outside the API's
    prefix, so that no gateway that routes the API reaches it.
    """
    objects = Objects(database)
    removal = Removal(database, content, clock)
    reader = Reader(database, content, removal)
    uploads = Uploads(database, content, reader, removal, clock)
    pins = StoredPins(database, removal, clock)

    app = make_app("blobstore", TokenReader(database, clock), config.frame, metrics)
    openings = Openings(database, clock)
    app.register_blueprint(object_routes.blueprint(objects, openings, uploads, removal), url_prefix=API_PREFIX)
    app.register_blueprint(parts.blueprint(objects, uploads), url_prefix=API_PREFIX)
    app.register_blueprint(content_routes.blueprint(objects, reader), url_prefix=API_PREFIX)
    app.register_blueprint(pin_routes.blueprint(pins, config.internal_key))
    app.register_blueprint(health.blueprint({**health.database_checks(database), "content": content.ping}))
    app.extensions["mingora_sweeper"] = Sweeper(database, content, removal, pins, clock)
    return app
