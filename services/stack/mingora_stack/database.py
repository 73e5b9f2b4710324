"""Brings the folder's platform database to what this code needs, before any service opens it."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from mingora_api.store import accounts
from mingora_common.clock import SystemClock
from mingora_common.db import migrate, schema
from mingora_common.db.engine import Database
from mingora_stack.errors import StackError


def prepare(url: str) -> None:
    """Migrate it, and make the tenant that accounts belong to unless another is named.

    Raises:
        StackError: the database was made by newer code, or it can't be read.
    """
    try:
        migrate.upgrade(url)
    except migrate.SchemaError as error:
        raise StackError(str(error)) from error
    except DatabaseError as error:
        raise StackError(f"The platform database {sa.make_url(url).database} can't be used: {error.orig}.") from error
    database = Database(url, schema.API)
    try:
        accounts.ensure_default_tenant(database, SystemClock())
    finally:
        database.close()
