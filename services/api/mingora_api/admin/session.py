"""What every command of ``mingora-admin`` works with: the platform's database, opened and checked, and who operates."""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from mingora_api.admin.output import Output
from mingora_api.domain.passwords import Passwords
from mingora_api.store.audit import Actor
from mingora_common.clock import Clock, SystemClock
from mingora_common.db import migrate
from mingora_common.db.engine import Database
from mingora_common.db.schema import API

PLATFORM_FILE = "platform.sqlite"


class AdminError(Exception):
    """What the operator is told, with the fix."""


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command."""

    database: Database
    clock: Clock
    passwords: Passwords
    actor: Actor
    output: Output


def database_url(arguments: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Where the platform's database is: ``--data DIR``, else ``DATABASE_URL`` (or ``DATABASE_URL_FILE``)."""
    if arguments.data is not None:
        path = Path(arguments.data).absolute() / PLATFORM_FILE
        return sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    url = environ.get("DATABASE_URL")
    if not url and environ.get("DATABASE_URL_FILE"):
        url = Path(environ["DATABASE_URL_FILE"]).read_text(encoding="utf-8").strip()
    if not url:
        raise AdminError("Which platform? Give --data DIR (the embedded stack's folder) or set DATABASE_URL.")
    return url


def migrated(url: str) -> None:
    """Bring the database to this code's schema, making an SQLite file and its folder where there is none."""
    path = _sqlite_path(url)
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrate.upgrade(url)


def open_session(url: str, output: Output) -> Session:
    """Open a database that has this code's schema; raises ``AdminError`` or ``SchemaError``."""
    path = _sqlite_path(url)
    if path is not None and not path.exists():
        raise AdminError(f"There is no platform at {path}. Start the stack there once, or run `mingora-admin migrate`.")
    migrate.check(url)
    return Session(Database(url, API), SystemClock(), Passwords(), Actor(f"operator:{_operator()}"), output)


def _sqlite_path(url: str) -> Path | None:
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise AdminError("DATABASE_URL isn't a database address.") from None
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database:
        raise AdminError("DATABASE_URL names no file.")
    return Path(parsed.database)


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid-{os.getuid()}"
