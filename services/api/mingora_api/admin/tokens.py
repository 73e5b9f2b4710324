"""``mingora-admin token …`` and ``mingora-admin audit``."""

from __future__ import annotations

import argparse

from mingora_api.admin.accounts import find
from mingora_api.admin.output import when
from mingora_api.admin.session import AdminError, Session
from mingora_api.store import audit, tokens
from mingora_common.clock import DAY


def list_tokens(session: Session, arguments: argparse.Namespace) -> None:
    """``token list [ACCOUNT]``: the live user and node tokens."""
    account_id = None if arguments.account is None else find(session, arguments.account).id
    with session.database.read() as connection:
        rows = tokens.live(connection, session.clock.now(), account_id)
    session.output.table(
        "tokens",
        [
            {
                "id": row.token_id,
                "account": row.account_name,
                "kind": row.kind,
                "name": row.name,
                "created": when(row.created_at),
                "lastUsed": when(row.last_used_at),
                "expires": when(row.expires_at),
            }
            for row in rows
        ],
    )


def revoke_token(session: Session, arguments: argparse.Namespace) -> None:
    """``token revoke ID``: of a user or a worker; it stops at once."""
    now = session.clock.now()
    with session.database.write() as connection:
        account_id = tokens.owner(connection, arguments.id)
        if account_id is None:
            raise AdminError(f"There is no token {arguments.id}. `mingora-admin token list` shows the live ones.")
        if tokens.revoke(connection, now, arguments.id, account_id):
            audit.record(connection, now, session.actor, "token.revoke", arguments.id)
    session.output.result(f"{arguments.id} is revoked.", id=arguments.id, revoked=True)


def audit_log(session: Session, arguments: argparse.Namespace) -> None:
    """``audit [--last N | --prune-days D]``."""
    if arguments.prune_days is None:
        show_audit(session, arguments)
    else:
        prune_audit(session, arguments)


def prune_audit(session: Session, arguments: argparse.Namespace) -> None:
    """Delete lines older than so many days; that it was done is a line too."""
    now, deleted = session.clock.now(), 0
    while True:
        with session.database.write() as connection:
            gone = audit.prune(connection, now - arguments.prune_days * DAY)
            if not gone:
                audit.record(connection, now, session.actor, "audit.prune", days=arguments.prune_days, deleted=deleted)
                break
        deleted += gone
    session.output.result(f"Deleted {deleted} lines.", deleted=deleted)


def show_audit(session: Session, arguments: argparse.Namespace) -> None:
    """The newest lines, oldest first."""
    with session.database.read() as connection:
        rows = audit.last(connection, arguments.last)
    session.output.table(
        "audit",
        [
            {
                "at": when(row.at),
                "actor": row.actor,
                "action": row.action,
                "subject": row.subject,
                "address": row.address,
                "data": row.data,
            }
            for row in rows
        ],
    )
