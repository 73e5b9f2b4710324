"""The audit log: who did what to what, and from where."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from mingora_common.db.schema import audit

MAX_ACTOR = 200
PRUNED_AT_ONCE = 5000  # so that no other writer waits long


class Actor(NamedTuple):
    """Who acts: a token of an account, or the operator.

    ``name`` is for people: ``token:tok_…``, ``operator:root``; ``address`` is the caller's, where there is one.
    """

    name: str
    account_id: str | None = None
    address: str | None = None


def record(
    connection: sa.Connection, now: int, actor: Actor, action: str, subject: str | None = None, **data: Any
) -> None:
    """Add a line to the audit log, in the transaction of what it tells."""
    connection.execute(
        sa.insert(audit).values(
            at=now,
            account_id=actor.account_id,
            actor=actor.name[:MAX_ACTOR],
            action=action,
            subject=subject,
            address=actor.address,
            data=data or None,
        )
    )


def last(connection: sa.Connection, count: int) -> list[sa.Row[Any]]:
    """The ``count`` newest lines, oldest first."""
    newest = connection.execute(sa.select(audit).order_by(audit.c.id.desc()).limit(count)).all()
    return list(reversed(newest))


def prune(connection: sa.Connection, before: int) -> int:
    """Delete some of the lines older than ``before``, the oldest first; how many, and 0 when there are no more."""
    oldest = sa.select(audit.c.id).where(audit.c.at < before).order_by(audit.c.id).limit(PRUNED_AT_ONCE)
    return connection.execute(sa.delete(audit).where(audit.c.id.in_(oldest))).rowcount
