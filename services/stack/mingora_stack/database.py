"""Brings the folder's two databases to what this code needs, before any service opens them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mingora_api.store import accounts
from mingora_blobstore.server import check_content
from mingora_common.clock import SystemClock
from mingora_common.config import ConfigError
from mingora_common.db import migrate, schema
from mingora_common.db.engine import Database
from mingora_common.db.reach import DatabaseAway, telling
from mingora_stack.errors import StackError


def prepare(url: str, content: Path) -> None:
    """Migrate, make the tenant that accounts belong to unless another is named, and see that content can be used.

    Raises:
        StackError: every problem: the database was made by newer code or can't be used, the content can't.
    """
    problems: list[str] = []
    steps: tuple[Callable[[], None], ...] = (lambda: _prepare_platform(url), lambda: check_content(str(content)))
    for step in steps:
        try:
            step()
        except (migrate.SchemaError, DatabaseAway, ConfigError) as error:
            problems.append(str(error).rstrip(".") + ".")
    if problems:
        raise StackError(" ".join(problems))


def _prepare_platform(url: str) -> None:
    migrate.upgrade(url)
    database = Database(url, schema.API)
    try:
        with telling(database.url):
            accounts.ensure_default_tenant(database, SystemClock())
    finally:
        database.close()
