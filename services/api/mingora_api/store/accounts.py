"""Tenants, accounts and their limits."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import account_limits, accounts, tenants, tokens
from mingora_common.ids import new_id

DEFAULT_TENANT = "default"

# BLOB-4 and BLOB-7: what an account holds until the operator changes it.
STANDARD_LIMITS = {
    "max_file_bytes": 8 * 1024 * 1024,
    "max_bytes": 64 * 1024 * 1024,
    "max_files": 1000,
    "max_jobs": 1000,
    "max_nodes": 200,
}


def ensure_default_tenant(database: Database, clock: Clock) -> None:
    """Make the tenant ``default`` unless it is there. Safe at every start, from several processes."""
    with database.read() as connection:
        if tenant_id(connection, DEFAULT_TENANT) is not None:
            return
    try:
        with database.write() as connection:
            create_tenant(connection, clock.now(), DEFAULT_TENANT)
    except IntegrityError:
        return  # another process was faster


def create_tenant(connection: sa.Connection, now: int, name: str) -> str:
    """A new tenant's id; ``IntegrityError`` when the name is taken."""
    new = new_id("ten")
    connection.execute(sa.insert(tenants).values(id=new, name=name, created_at=now))
    return new


def tenant_id(connection: sa.Connection, name: str) -> str | None:
    """The id of the tenant of this name."""
    return connection.execute(sa.select(tenants.c.id).where(tenants.c.name == name)).scalar()


def list_tenants(connection: sa.Connection) -> list[sa.Row[Any]]:
    """Every tenant (id, name, created_at, accounts), by name."""
    query = (
        sa.select(tenants.c.id, tenants.c.name, tenants.c.created_at, sa.func.count(accounts.c.id).label("accounts"))
        .select_from(tenants.outerjoin(accounts, accounts.c.tenant_id == tenants.c.id))
        .group_by(tenants.c.id, tenants.c.name, tenants.c.created_at)
        .order_by(tenants.c.name)
    )
    return list(connection.execute(query))


def create_account(connection: sa.Connection, now: int, *, tenant: str, name: str, password_hash: str) -> str:
    """A new account's id, with the standard limits; ``IntegrityError`` when the name is taken."""
    new = new_id("acc")
    connection.execute(
        sa.insert(accounts).values(
            id=new, tenant_id=tenant, name=name, password_hash=password_hash, created_at=now, disabled_at=None
        )
    )
    connection.execute(sa.insert(account_limits).values(account_id=new, **STANDARD_LIMITS))
    return new


def find_account(connection: sa.Connection, name: str) -> sa.Row[Any] | None:
    """The account of this name: id, name, password_hash, disabled_at, tenant_id, tenant_name."""
    query = (
        sa.select(accounts, tenants.c.name.label("tenant_name"))
        .join(tenants, tenants.c.id == accounts.c.tenant_id)
        .where(accounts.c.name == name)
    )
    return connection.execute(query).first()


def list_accounts(connection: sa.Connection) -> list[sa.Row[Any]]:
    """Every account with its tenant's name, by tenant and name."""
    query = (
        sa.select(
            accounts.c.id, accounts.c.name, accounts.c.created_at, accounts.c.disabled_at,
            tenants.c.name.label("tenant_name"),
        )
        .join(tenants, tenants.c.id == accounts.c.tenant_id)
        .order_by(tenants.c.name, accounts.c.name)
    )  # fmt: skip
    return list(connection.execute(query))


def set_password(connection: sa.Connection, now: int, account_id: str, password_hash: str) -> int:
    """Store another password and revoke the account's user tokens; how many those were."""
    connection.execute(sa.update(accounts).where(accounts.c.id == account_id).values(password_hash=password_hash))
    revoked = connection.execute(
        sa.update(tokens)
        .where(tokens.c.account_id == account_id, tokens.c.revoked_at.is_(None), tokens.c.expires_at > now)
        .values(revoked_at=now)
    )
    return revoked.rowcount


def rehash(connection: sa.Connection, account_id: str, old_hash: str, new_hash: str) -> None:
    """Replace a password's hash by one of the same password, unless the password has been changed meanwhile."""
    connection.execute(
        sa.update(accounts)
        .where(accounts.c.id == account_id, accounts.c.password_hash == old_hash)
        .values(password_hash=new_hash)
    )


def set_disabled(connection: sa.Connection, account_id: str, at: int | None) -> None:
    """Disable an account from ``at`` on, or enable it with None."""
    connection.execute(sa.update(accounts).where(accounts.c.id == account_id).values(disabled_at=at))


def limits_of(connection: sa.Connection, account_id: str) -> dict[str, int]:
    """An account's limits by column name."""
    row = connection.execute(sa.select(account_limits).where(account_limits.c.account_id == account_id)).one()
    return {name: row._mapping[name] for name in STANDARD_LIMITS}


def set_limits(connection: sa.Connection, account_id: str, limits: dict[str, int]) -> None:
    """Change some of an account's limits."""
    connection.execute(sa.update(account_limits).where(account_limits.c.account_id == account_id).values(**limits))


def lock(connection: sa.Connection, account_id: str) -> None:
    """Hold the account's row until the transaction ends, so that what is counted against a limit stays counted."""
    connection.execute(sa.select(accounts.c.id).where(accounts.c.id == account_id).with_for_update()).one()
