"""What every command of ``mingora-admin`` works with: the platform's database, opened and checked, and who operates."""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from mingora_api.admin.output import Output
from mingora_api.domain.passwords import Passwords
from mingora_api.store.audit import Actor
from mingora_common.clock import Clock, SystemClock
from mingora_common.config import Env
from mingora_common.db import migrate
from mingora_common.db.engine import Database
from mingora_common.db.reach import url_problem
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
    env = Env(environ)
    url = env.optional("DATABASE_URL")
    env.check()
    if not url:
        raise AdminError("Which platform? Give --data DIR (the embedded stack's folder) or set DATABASE_URL.")
    return url


def migrated(url: str) -> None:
    """Bring the database to this code's schema, making an SQLite file and its folder where there is none."""
    path = sqlite_path(url)
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrate.upgrade(url)


def open_session(url: str, output: Output) -> Session:
    """Open a database that has this code's schema; raises ``AdminError`` or ``SchemaError``."""
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise AdminError(f"There is no platform at {path}. Start the stack there once, or run `mingora-admin migrate`.")
    migrate.check(url)
    return Session(Database(url, API), SystemClock(), Passwords(), operator(), output)


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite database; None for a server's. Raises ``AdminError`` for an address that isn't one."""
    problem = url_problem(url)
    if problem is not None:
        raise AdminError(f"DATABASE_URL {problem}.")
    parsed = sa.make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def operator() -> Actor:
    """Who runs this command, as the audit log names them."""
    return Actor(f"operator:{_operator()}")


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid-{os.getuid()}"
