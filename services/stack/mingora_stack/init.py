"""The command ``mingora-init``: makes the secrets of a platform in containers, once, each where only its readers look.

One folder (a volume in compose) for each circle of readers:

``database/``     ``password`` of the database, and ``url`` as the services read it
``redis/``        ``password``, ``url``, and ``redis.conf`` for the server
``internal/``     ``key`` of the calls between services
``metrics/``      ``key`` that opens ``/metrics``
``coordinator/`` ``key`` of the volunteers

Running it again changes nothing. A secret that was put there by hand is checked and kept.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from mingora_common.config import weakness


class InitError(Exception):
    """The secrets can't be made or mustn't be used; the message names the fix."""


def make(folder: Path, *, database: str, redis: str) -> list[Path]:
    """Make in ``folder`` what is missing, and bring what follows from a secret up to date; what was written.

    Args:
        database: host and port of the PostgreSQL server; its user and database are both named mingora.
        redis: host and port of the Redis server.

    Raises:
        InitError: a secret there is weak, ``database`` has no port, or the folder can't be written.
    """
    written: list[Path] = []
    host, _, port = database.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port):
        raise InitError(f"{database} isn't an address of PostgreSQL: write HOST:PORT, for example postgres:5432.")
    try:
        password = _secret(folder / "database" / "password", written)
        url = sa.URL.create("postgresql+psycopg", "mingora", password, host, int(port), "mingora")
        _derived(folder / "database" / "url", url.render_as_string(hide_password=False), written)
        password = _secret(folder / "redis" / "password", written)
        _derived(folder / "redis" / "url", f"redis://:{quote(password, safe='')}@{redis}/0", written)
        _derived(folder / "redis" / "redis.conf", f"requirepass {password}\n", written)
        _secret(folder / "internal" / "key", written)
        _secret(folder / "metrics" / "key", written)
        _secret(folder / "coordinator" / "key", written)
    except OSError as error:
        raise InitError(
            f"{error.filename or folder}: {error.strerror}. The volumes of secrets must have space and belong to the "
            f"user {os.geteuid()}."
        ) from error
    return written


def _secret(path: Path, written: list[Path]) -> str:
    if not path.exists():
        _write(path, secrets.token_urlsafe(32))
        written.append(path)
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        weak: str | None = "isn't text in UTF-8"
    else:
        weak = weakness(secret)
        if weak is None and re.search(r"""[\s"'\\]""", secret):
            weak = "holds spaces, quotation marks or backslashes, which not every server takes"
    if weak is not None:
        raise InitError(f"The secret {path} {weak}. Delete the file and start again: a new one is made.")
    return secret


def _derived(path: Path, text: str, written: list[Path]) -> None:
    if not path.exists() or path.read_bytes() != text.encode():
        _write(path, text)
        written.append(path)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, there after a loss of power, and for its owner alone."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def run(arguments: Sequence[str] | None = None) -> int:
    """The entry point; the exit status."""
    parser = argparse.ArgumentParser(prog="mingora-init", description="Make a platform's secrets, once.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="holds a folder for each circle")
    parser.add_argument("--database", default="postgres:5432", metavar="HOST:PORT", help="default %(default)s")
    parser.add_argument("--redis", default="redis:6379", metavar="HOST:PORT", help="default %(default)s")
    options = parser.parse_args(arguments)
    try:
        written = make(options.folder, database=options.database, redis=options.redis)
    except InitError as error:
        print(f"mingora-init: {error}", file=sys.stderr)
        return 1
    print("Made: " + ", ".join(map(str, written)) if written else "All secrets are there.")
    return 0


if __name__ == "__main__":
    sys.exit(run())
