"""The command ``mingora-admin``: its arguments, and what becomes of errors.

Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mingora_api.admin import accounts, tokens
from mingora_api.admin.output import Output, note
from mingora_api.admin.session import AdminError, database_url, migrated, open_session
from mingora_api.store.accounts import ensure_default_tenant
from mingora_common.clock import SystemClock
from mingora_common.config import ConfigError
from mingora_common.db.engine import Database
from mingora_common.db.migrate import SchemaError, downgrade, known
from mingora_common.db.reach import DatabaseAway, telling
from mingora_common.db.schema import API

Command = Callable[..., None]


def run(argv: Sequence[str] | None = None, *, more: Callable[[Any], None] | None = None) -> int:
    """The entry point; ``argv`` is without the program's name, ``more`` adds commands that aren't api's alone."""
    arguments = parser(more).parse_args(argv)
    os.umask(0o077)  # a database file that is made here is its owner's alone
    output = Output(as_json=arguments.json)
    try:
        url = database_url(arguments, os.environ)
        if arguments.whole:
            arguments.command(url, arguments, output)
        else:
            session = open_session(url, output)
            try:
                with telling(session.database.url):
                    arguments.command(session, arguments)
            finally:
                session.database.close()
    except (AdminError, ConfigError, SchemaError, DatabaseAway, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def parser(more: Callable[[Any], None] | None = None) -> argparse.ArgumentParser:
    """All commands and options."""
    root = argparse.ArgumentParser(prog="mingora-admin", description="Operate a Mingora platform.", allow_abbrev=False)
    root.add_argument("--data", metavar="DIR", help="the embedded stack's data folder (else DATABASE_URL is used)")
    root.add_argument("--json", action="store_true", help="print one JSON object")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    migrate = leaf(commands, "migrate", _migrate, "make the database, or bring it to this version's schema", whole=True)
    migrate.add_argument(
        "--down-to",
        metavar="SCHEMA",
        help="take it back to an older schema, before older software (docs/operations.md)",
    )
    _tenant_commands(_branch(commands, "tenant", "groups of accounts"))
    _account_commands(_branch(commands, "account", "who may log in, and how much they hold"))
    _token_commands(_branch(commands, "token", "logins and workers"))
    audit = leaf(commands, "audit", tokens.audit_log, "who did what")
    audit.add_argument("--last", metavar="N", type=_count, default=50, help="how many lines (default 50)")
    audit.add_argument("--prune-days", metavar="D", type=_count, help="delete lines older than D days instead")
    if more is not None:
        more(commands)
    return root


def leaf(commands: Any, name: str, command: Command, text: str, *, whole: bool = False) -> argparse.ArgumentParser:
    """Add a command: ``command(session, arguments)``. A ``whole`` one opens what it needs itself: ``command(url,
    arguments, output)``, with the database's address."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    added.set_defaults(command=command, whole=whole)
    return added


def _tenant_commands(branch: Any) -> None:
    leaf(branch, "create", accounts.create_tenant, "make a tenant").add_argument("name", metavar="NAME")
    leaf(branch, "list", accounts.list_tenants, "show all tenants")


def _account_commands(branch: Any) -> None:
    create = leaf(branch, "create", accounts.create_account, "make an account")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--tenant", metavar="T", default="default", help="whose account it is (default: default)")
    password = leaf(branch, "password", accounts.change_password, "set another password and revoke its logins")
    password.add_argument("name", metavar="NAME")
    for changing in (create, password):
        changing.add_argument(
            "--password-stdin",
            action="store_true",
            help="read the password from the first line of stdin; without this it is asked for on a terminal, "
            "and generated and shown once elsewhere",
        )
    leaf(branch, "list", accounts.list_accounts, "show all accounts")
    for name, command, text in (
        ("disable", accounts.disable_account, "stop an account and its workers at once"),
        ("enable", accounts.enable_account, "let a disabled account work again"),
    ):
        leaf(branch, name, command, text).add_argument("name", metavar="NAME")
    limits = leaf(branch, "limits", accounts.change_limits, "show or change what an account may hold")
    limits.add_argument("name", metavar="NAME")
    for column in accounts.LIMITS:
        option = "--" + column.replace("_", "-")
        limits.add_argument(option, type=accounts.amount, metavar="N", help="a number, or a size such as 512MiB")


def _token_commands(branch: Any) -> None:
    listing = leaf(branch, "list", tokens.list_tokens, "show live tokens")
    listing.add_argument("account", metavar="ACCOUNT", nargs="?", help="only this account's")
    leaf(branch, "revoke", tokens.revoke_token, "end a token at once").add_argument("id", metavar="ID")


def _branch(commands: Any, name: str, text: str) -> Any:
    return commands.add_parser(name, help=text, allow_abbrev=False).add_subparsers(required=True, metavar="COMMAND")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError("must be a number from 1 to 100000")
    return int(text)


def _migrate(url: str, arguments: argparse.Namespace, output: Output) -> None:
    if arguments.down_to is not None:
        if arguments.down_to not in known():
            raise AdminError(f"There is no schema {arguments.down_to}. This version knows {', '.join(known())}.")
        downgrade(url, arguments.down_to)
        output.result(f"The database has schema {arguments.down_to}.", migrated=True)
        return
    migrated(url)
    database = Database(url, API)
    try:
        with telling(database.url):
            ensure_default_tenant(database, SystemClock())
    finally:
        database.close()
    output.result("The database has this version's schema.", migrated=True)


def _fail(message: str) -> int:
    note(f"mingora-admin: {message}")
    return 1


if __name__ == "__main__":
    sys.exit(run())
