"""Brings the folder's platform database to what this code needs, before any service opens it."""

from __future__ import annotations

from mingora_api.store import accounts
from mingora_common.clock import SystemClock
from mingora_common.db import migrate, schema
from mingora_common.db.engine import Database

from mingora_stack.errors import StackError


def prepare(url: str) -> None:
    """Migrate it, and make the tenant that accounts belong to unless another is named.

    Raises:
        StackError: the database was made by newer code.
    """
    try:
        migrate.upgrade(url)
    except migrate.SchemaError as error:
        raise StackError(str(error)) from error
    database = Database(url, schema.API)
    try:
        accounts.ensure_default_tenant(database, SystemClock())
    finally:
        database.close()
