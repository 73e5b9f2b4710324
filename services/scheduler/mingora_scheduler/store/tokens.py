"""Scheduler's own tokens: a node's for claiming, a lease's for one rank of one attempt (AUTH-9)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from mingora_common.auth import LEASE, NODE, hash_token, new_token
from mingora_common.db.schema import attempts, leases, work_tokens
from mingora_common.db.views import live_token
from mingora_common.ids import new_id
from mingora_scheduler.domain.leases import LEASE_TOKEN_SLACK, LEASE_TTL, REPLAY, TOKEN_KEPT
from mingora_scheduler.store.rows import Row

CLEANED_AT_ONCE = 500


def issue_node_token(connection: sa.Connection, node: Row, now: int, expires_at: int) -> tuple[str, str]:
    """A new token for a node, ``(token, its id)``; every older one of the node is revoked."""
    revoke(connection, work_tokens.c.node_id == node.id, work_tokens.c.kind == NODE, now=now)
    return _insert(connection, NODE, node, None, now, expires_at)


def issue_lease_token(connection: sa.Connection, node: Row, lease_id: str, now: int) -> str:
    """A new token for a lease; every older one of the lease is revoked."""
    revoke(connection, work_tokens.c.lease_id == lease_id, now=now)
    return _insert(connection, LEASE, node, lease_id, now, now + LEASE_TTL + LEASE_TOKEN_SLACK)[0]


def revoke(connection: sa.Connection, *which: sa.ColumnElement[bool], now: int) -> None:
    """Revoke the live ones among the tokens named by ``which``."""
    connection.execute(sa.update(work_tokens).where(*which, work_tokens.c.revoked_at.is_(None)).values(revoked_at=now))


def renew(connection: sa.Connection, token_id: str, now: int, expires_at: int) -> None:
    """Push out a token that has just been used."""
    guard = (work_tokens.c.id == token_id, work_tokens.c.revoked_at.is_(None))
    connection.execute(sa.update(work_tokens).where(*guard).values(expires_at=expires_at, last_used_at=now))


def renew_node(connection: sa.Connection, node_id: str, now: int, expires_at: int) -> None:
    """The node was heard from by way of its lease: its own token lives on."""
    guard = (work_tokens.c.node_id == node_id, work_tokens.c.kind == NODE, work_tokens.c.revoked_at.is_(None))
    connection.execute(sa.update(work_tokens).where(*guard).values(expires_at=expires_at, last_used_at=now))


def reported_lease(connection: sa.Connection, token: str, now: int) -> Row | None:
    """The lease that ended by a report under this token not long ago, if the node's own token still lives.

    The token itself is dead for every other purpose.
    """
    columns = (leases.c.id, leases.c.node_id, leases.c.attempt, leases.c.report_digest)
    return connection.execute(
        sa.select(*columns, attempts.c.state.label("attempt_state"))
        .join(attempts, attempts.c.id == leases.c.attempt_id)
        .join(work_tokens, work_tokens.c.lease_id == leases.c.id)
        .where(
            work_tokens.c.hash == hash_token(token),
            work_tokens.c.kind == LEASE,
            work_tokens.c.revoked_at == leases.c.ended_at,
            leases.c.report_digest.is_not(None),
            leases.c.ended_at > now - REPLAY,
            has_live_token(leases.c.node_id, now),
        )
    ).first()


def has_live_token(node_id: sa.ColumnElement[Any], now: int) -> sa.ColumnElement[bool]:
    """Whether a node has a token of its own that works: without, it couldn't claim."""
    return sa.exists().where(live_token.c.node_id == node_id, live_token.c.kind == NODE, live_token.c.expires_at > now)


def is_live(connection: sa.Connection, token_id: str, now: int) -> bool:
    """Whether a token that worked a moment ago still does."""
    query = sa.select(live_token.c.token_id).where(live_token.c.token_id == token_id, live_token.c.expires_at > now)
    return connection.execute(query).first() is not None


def clean(connection: sa.Connection, now: int) -> int:
    """Delete lease tokens that ended long ago; the number deleted."""
    old = now - TOKEN_KEPT
    dead = (
        sa.select(work_tokens.c.id)
        .where(work_tokens.c.kind == LEASE, (work_tokens.c.revoked_at < old) | (work_tokens.c.expires_at < old))
        .limit(CLEANED_AT_ONCE)
        .with_for_update(skip_locked=True)  # another task that cleans, or purges a job, has the rest
    )
    ids = list(connection.execute(dead).scalars())
    return connection.execute(sa.delete(work_tokens).where(work_tokens.c.id.in_(ids))).rowcount


def _insert(
    connection: sa.Connection, kind: str, node: Row, lease_id: str | None, now: int, expires_at: int
) -> tuple[str, str]:
    token, hashed = new_token(kind)
    token_id = new_id("tok")
    connection.execute(
        sa.insert(work_tokens).values(
            id=token_id, kind=kind, hash=hashed, account_id=node.account_id, tenant_id=node.tenant_id,
            node_id=node.id, lease_id=lease_id, name=node.name, created_at=now, expires_at=expires_at,
        )
    )  # fmt: skip
    return token, token_id
