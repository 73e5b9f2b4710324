"""``mingora-admin tenant …`` and ``mingora-admin account …``."""

from __future__ import annotations

import argparse
import getpass
import re
import secrets
import sys
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from mingora_api.admin.output import note, when
from mingora_api.admin.session import AdminError, Session
from mingora_api.domain.names import name_problem, normal, password_problem
from mingora_api.store import accounts, audit

# The limits by their names on the wire and in --json; the options are the columns with dashes.
LIMITS = {
    "max_file_bytes": "maxFileBytes",
    "max_bytes": "maxBytes",
    "max_files": "maxFiles",
    "max_jobs": "maxJobs",
    "max_nodes": "maxNodes",
}
MAX_LIMIT = 2**53

_AMOUNT = re.compile(r"([0-9]{1,16})(|KiB|MiB|GiB|TiB)")
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def create_tenant(session: Session, arguments: argparse.Namespace) -> None:
    """``tenant create NAME``."""
    name = _checked_name(arguments.name)
    try:
        with session.database.write() as connection:
            tenant_id = accounts.create_tenant(connection, session.clock.now(), name)
            _record(connection, session, "tenant.create", tenant_id, name=name)
    except IntegrityError:
        raise AdminError(f"The tenant {name} exists already.") from None
    session.output.result(f"Made the tenant {name}.", id=tenant_id, name=name)


def list_tenants(session: Session, _arguments: argparse.Namespace) -> None:
    """``tenant list``."""
    with session.database.read() as connection:
        rows = accounts.list_tenants(connection)
    session.output.table(
        "tenants",
        [{"name": row.name, "accounts": row.accounts, "created": when(row.created_at), "id": row.id} for row in rows],
    )


def create_account(session: Session, arguments: argparse.Namespace) -> None:
    """``account create NAME [--tenant T] [--password-stdin]``."""
    name = _checked_name(arguments.name)
    with session.database.read() as connection:
        tenant_id = accounts.tenant_id(connection, normal(arguments.tenant))
        taken = accounts.find_account(connection, name) is not None
    if tenant_id is None:
        raise AdminError(f"There is no tenant {arguments.tenant}. Make it with `mingora-admin tenant create`.")
    exists = AdminError(f"The account {name} exists already. `mingora-admin account password` changes its password.")
    if taken:
        raise exists
    password, generated = _new_password(from_stdin=arguments.password_stdin)
    hashed = session.passwords.hash(password)
    try:
        with session.database.write() as connection:
            account_id = accounts.create_account(
                connection, session.clock.now(), tenant=tenant_id, name=name, password_hash=hashed
            )
            _record(connection, session, "account.create", account_id, name=name)
    except IntegrityError:
        raise exists from None
    _tell_password(session, f"Made the account {name}.", password if generated else None, id=account_id, name=name)


def list_accounts(session: Session, _arguments: argparse.Namespace) -> None:
    """``account list``."""
    with session.database.read() as connection:
        rows = accounts.list_accounts(connection)
    session.output.table(
        "accounts",
        [
            {
                "name": row.name,
                "tenant": row.tenant_name,
                "created": when(row.created_at),
                "disabled": when(row.disabled_at),
                "id": row.id,
            }
            for row in rows
        ],
    )


def change_password(session: Session, arguments: argparse.Namespace) -> None:
    """``account password NAME [--password-stdin]``: user tokens end, workers keep theirs."""
    account = find(session, arguments.name)
    password, generated = _new_password(from_stdin=arguments.password_stdin)
    hashed = session.passwords.hash(password)
    with session.database.write() as connection:
        revoked = accounts.set_password(connection, session.clock.now(), account.id, hashed)
        _record(connection, session, "account.password", account.id, revokedTokens=revoked)
    text = f"Changed the password of {account.name}; {revoked} tokens were revoked. Workers keep running."
    shown = password if generated else None
    _tell_password(session, text, shown, id=account.id, name=account.name, revokedTokens=revoked)


def disable_account(session: Session, arguments: argparse.Namespace) -> None:
    """``account disable NAME``: every token of it, its workers' included, stops at once."""
    account = find(session, arguments.name)
    if account.disabled_at is None:
        _switch(session, account, "account.disable", session.clock.now())
    session.output.result(f"{account.name} is disabled: none of its tokens works.", id=account.id, disabled=True)


def enable_account(session: Session, arguments: argparse.Namespace) -> None:
    """``account enable NAME``."""
    account = find(session, arguments.name)
    if account.disabled_at is not None:
        _switch(session, account, "account.enable", None)
    session.output.result(f"{account.name} is enabled.", id=account.id, disabled=False)


def change_limits(session: Session, arguments: argparse.Namespace) -> None:
    """``account limits NAME [--max-bytes N …]``: change what is given, then show all."""
    account = find(session, arguments.name)
    given = {column: getattr(arguments, column) for column in LIMITS if getattr(arguments, column) is not None}
    with session.database.write() as connection:
        if given:
            accounts.set_limits(connection, account.id, given)
            _record(connection, session, "account.limits", account.id, **given)
        limits = accounts.limits_of(connection, account.id)
    lines = "\n".join(f"{'--' + column.replace('_', '-'):<18} {value}" for column, value in limits.items())
    session.output.result(
        lines, id=account.id, name=account.name, limits={LIMITS[column]: value for column, value in limits.items()}
    )


def amount(text: str) -> int:
    """A limit as it is typed: a whole number, or a size such as ``512MiB``."""
    match = _AMOUNT.fullmatch(text)
    value = int(match[1]) * _UNITS[match[2]] if match else -1
    if not 0 <= value <= MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number or a size such as 512MiB")
    return value


def find(session: Session, name: str) -> sa.Row[Any]:
    """The account of this name; raises ``AdminError``."""
    with session.database.read() as connection:
        account = accounts.find_account(connection, normal(name))
    if account is None:
        raise AdminError(f"There is no account {name}. `mingora-admin account list` shows all.")
    return account


def _switch(session: Session, account: sa.Row[Any], action: str, disabled_at: int | None) -> None:
    with session.database.write() as connection:
        accounts.set_disabled(connection, account.id, disabled_at)
        _record(connection, session, action, account.id)


def _checked_name(text: str) -> str:
    name = normal(text)
    problem = name_problem(name)
    if problem is not None:
        raise AdminError(f"This name can't be used: {problem}.")
    return name


def _new_password(*, from_stdin: bool) -> tuple[str, bool]:
    """A password, and whether it was generated: that is done where nobody can be asked, or types nothing."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass("New password (empty: one is generated): ")
        if password and getpass.getpass("Once more: ") != password:
            raise AdminError("The two passwords differ. Nothing was changed.")
    else:
        password = ""
    if not password and not from_stdin:
        return secrets.token_urlsafe(15), True
    problem = password_problem(password)
    if problem is not None:
        raise AdminError(f"This password can't be used: {problem}.")
    return password, False


def _tell_password(session: Session, text: str, generated: str | None, **members: Any) -> None:
    if generated is None:
        session.output.result(text, **members)
    else:
        note("A password was generated; it is shown this once.")
        session.output.result(f"{text}\nPassword: {generated}", **members, password=generated)


def _record(connection: sa.Connection, session: Session, action: str, subject: str, **data: Any) -> None:
    audit.record(connection, session.clock.now(), session.actor, action, subject, **data)
