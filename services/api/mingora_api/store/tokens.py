"""User tokens, and the revocation of tokens of any kind."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from mingora_common.auth import NODE, SCOPES, USER
from mingora_common.clock import DAY, MINUTE
from mingora_common.db.schema import accounts, token_revocations, tokens
from mingora_common.db.views import live_token
from mingora_common.ids import new_id

LIFETIME = DAY
KEPT_AFTER_EXPIRY = 30 * DAY
USE_NOTED_EVERY = MINUTE
MAX_LISTED = 1000
REVOCATIONS_AT_ONCE = 200


def create(connection: sa.Connection, now: int, *, account_id: str, hashed: str, name: str) -> str:
    """A new user token's id. The account's long expired ones, and what was revoked of them, are dropped on the way."""
    connection.execute(
        sa.delete(tokens).where(tokens.c.account_id == account_id, tokens.c.expires_at <= now - KEPT_AFTER_EXPIRY)
    )
    _drop_revocations(connection, now, account_id)
    new = new_id("tok")
    connection.execute(
        sa.insert(tokens).values(
            id=new,
            account_id=account_id,
            hash=hashed,
            name=name,
            scopes=" ".join(SCOPES),
            created_at=now,
            expires_at=now + LIFETIME,
        )
    )
    return new


def note_use(connection: sa.Connection, now: int, token_id: str) -> None:
    """Write down that a token was used, unless that was done within the last minute."""
    unnoted = sa.or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at <= now - USE_NOTED_EVERY)
    connection.execute(sa.update(tokens).where(tokens.c.id == token_id, unnoted).values(last_used_at=now))


def live(connection: sa.Connection, now: int, account_id: str | None = None) -> list[sa.Row[Any]]:
    """The live user and node tokens, newest first, at most ``MAX_LISTED``; of one account, or of all."""
    query = sa.select(live_token).where(live_token.c.kind.in_((USER, NODE)), live_token.c.expires_at > now)
    if account_id is not None:
        query = query.where(live_token.c.account_id == account_id)
    query = query.order_by(live_token.c.created_at.desc(), live_token.c.token_id).limit(MAX_LISTED)
    return list(connection.execute(query))


def revoke(connection: sa.Connection, now: int, token_id: str, account_id: str) -> bool | None:
    """Revoke a user or node token of ``account_id``: True when it lived, False when it was revoked already.

    None when the account has no such token.
    """
    mine = (tokens.c.id == token_id, tokens.c.account_id == account_id)
    changed = connection.execute(sa.update(tokens).where(*mine, tokens.c.revoked_at.is_(None)).values(revoked_at=now))
    if changed.rowcount:
        return True
    if connection.execute(sa.select(tokens.c.id).where(*mine)).first() is not None:
        return False
    return _revoke_node_token(connection, now, token_id, account_id)


def owner(connection: sa.Connection, token_id: str) -> str | None:
    """The account of a user token, or of a node token that lives or was revoked by api."""
    for query in (
        sa.select(tokens.c.account_id).where(tokens.c.id == token_id),
        sa.select(live_token.c.account_id).where(live_token.c.token_id == token_id, live_token.c.kind == NODE),
        sa.select(token_revocations.c.account_id).where(token_revocations.c.token_id == token_id),
    ):
        found = connection.execute(query).scalar()
        if found is not None:
            return str(found)
    return None


def _revoke_node_token(connection: sa.Connection, now: int, token_id: str, account_id: str) -> bool | None:
    # The account's row is held so that two revocations of one token don't both insert.
    connection.execute(sa.select(accounts.c.id).where(accounts.c.id == account_id).with_for_update())
    known = sa.select(token_revocations.c.token_id).where(
        token_revocations.c.token_id == token_id, token_revocations.c.account_id == account_id
    )
    if connection.execute(known).first() is not None:
        return False
    mine = sa.select(live_token.c.token_id).where(
        live_token.c.token_id == token_id, live_token.c.account_id == account_id, live_token.c.kind == NODE
    )
    if connection.execute(mine).first() is None:
        return None
    connection.execute(sa.insert(token_revocations).values(token_id=token_id, account_id=account_id, at=now))
    return True


def _drop_revocations(connection: sa.Connection, now: int, account_id: str) -> None:
    """Delete old revocations of node tokens that are dead without them. The caller holds the account's row.

    A token's end is scheduler's to know. So the rows go first, and those come back whose token would live again, all in
    one transaction: nobody else sees them gone.
    """
    mine = sa.select(token_revocations).where(
        token_revocations.c.account_id == account_id, token_revocations.c.at <= now - KEPT_AFTER_EXPIRY
    )
    old = {row.token_id: row for row in connection.execute(mine.limit(REVOCATIONS_AT_ONCE))}
    if not old:
        return
    connection.execute(sa.delete(token_revocations).where(token_revocations.c.token_id.in_(old)))
    revived = sa.select(live_token.c.token_id).where(live_token.c.token_id.in_(old), live_token.c.expires_at > now)
    for token_id in connection.execute(revived).scalars().all():
        connection.execute(sa.insert(token_revocations).values(old[token_id]._asdict()))
