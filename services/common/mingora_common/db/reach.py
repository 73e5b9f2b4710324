"""Why a database can't be used, in words that name the fix and show no password."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, ProgrammingError

DRIVER = "postgresql+psycopg"
CONNECT_SECONDS = 5

# What PostgreSQL's client says, in part, and what that means to the operator. {} are host, user and database.
_SERVER_SAYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("password authentication failed", "no password supplied"), "the user or the password is wrong (user {user})"),
    (("no pg_hba.conf entry",), "the server doesn't let this machine in (pg_hba.conf)"),
    (("does not exist",), "the server has no database or no user of this name ({user}, {database}): create it there"),
    (("permission denied",), "the user {user} may not do that in {database}: make it the database's owner"),
    (
        ("resolve host", "Name or service not known", "translate host name", "No address associated", "nodename nor"),
        "there is no machine of the name {host}: check the host in DATABASE_URL",
    ),
    (
        ("Connection refused", "timeout", "timed out", "unreachable", "No such file or directory"),
        "nobody answers at {host}:{port}: start PostgreSQL there, or mend host and port",
    ),
    (("too many clients", "remaining connection slots"), "it takes no more connections: raise max_connections"),
    (("starting up", "shutting down", "recovery mode"), "the server is starting or stopping: try again in a moment"),
    (("read-only transaction",), "the server only lets read: it is a standby. Name the primary"),
    (("No space left", "could not extend file"), "the server's disk is full: make room there"),
)
_SQLITE_SAYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("file is not a database",), "it isn't a database: restore it from a back-up, or name another file"),
    (("malformed",), "it is damaged: restore it from a back-up"),
    (("disk is full",), "the disk is full: make room"),
    (("readonly", "read-only"), "this user may not write it: check its owner and its folder's"),
    (("locked",), "another process holds it for too long: end that process"),
)


class DatabaseAway(Exception):
    """The database can't be used; the message says why and what to do, without a secret."""


def url_problem(text: str) -> str | None:
    """What is wrong with a ``DATABASE_URL`` as such, or None. Says nothing of whether somebody answers there."""
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        return f"isn't a database address: write sqlite:////path/platform.sqlite or {DRIVER}://user:password@host/name"
    if url.drivername == "sqlite":
        if not url.database or not Path(url.database).is_absolute():
            return "must name a file with its whole path: sqlite:////path/platform.sqlite"
        return None
    if url.drivername != DRIVER:
        return f"begins with {url.drivername!r}, which this software doesn't use: write sqlite:// or {DRIVER}://"
    if not url.database:
        return f"names no database: write {DRIVER}://user:password@host/name"
    return None


def engine_of(url: str) -> sa.Engine:
    """An engine for a tool's single connection; raises ``DatabaseAway`` for an address that isn't one."""
    problem = url_problem(url)
    if problem is not None:
        raise DatabaseAway(f"DATABASE_URL {problem}.")
    parsed = sa.make_url(url)
    server: dict[str, Any] = {} if parsed.drivername == "sqlite" else {"connect_timeout": CONNECT_SECONDS}
    return sa.create_engine(parsed, connect_args=server)


@contextmanager
def telling(url: sa.URL) -> Iterator[None]:
    """Turn errors that say that the database can't be used into ``DatabaseAway``."""
    try:
        yield
    except DBAPIError as error:
        raise DatabaseAway(explain(error, url)) from error


def is_away(error: DBAPIError) -> bool:
    """Whether an error says that the database can't serve just now (gone, full, damaged), and not that the code erred.

    Its operator mends it, and the same request will do.
    """
    if error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError)):
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explain(error: DBAPIError, url: sa.URL) -> str:
    """What the operator is told of an error of the database at ``url``."""
    said = " ".join(str(error.orig).split())
    if url.get_backend_name() == "sqlite":
        return f"The database {url.database} can't be used: {_of_file(said, Path(url.database or ''))}."
    place = {
        "host": url.host or "this machine",
        "port": url.port or 5432,
        "user": url.username,
        "database": url.database,
    }
    for marks, meaning in _SERVER_SAYS:
        if isinstance(error, (OperationalError, InterfaceError, ProgrammingError)) and any(m in said for m in marks):
            return f"The database can't be used: {meaning.format(**place)}."
    if url.password:
        said = said.replace(str(url.password), "***")
    return f"The database can't be used: {said[:300]}"


def _of_file(said: str, path: Path) -> str:
    for marks, meaning in _SQLITE_SAYS:
        if any(mark in said for mark in marks):
            return meaning
    if "unable to open" in said:
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
        if path.is_dir():
            return "it is a folder"
        if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
            return "this user may not write there: check the owner of the file and of its folder"
    return said[:300]
