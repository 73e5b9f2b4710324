"""token list, token revoke: the account's live tokens, the workers' among them (AUTH-4)."""

from __future__ import annotations

import argparse

from mingora.commands.context import Command, Context
from mingora.i18n import _
from mingora.output import table, time_text


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title=_("actions"), metavar=_("ACTION"), required=True)
    for command in _ACTIONS:
        shared = argparse.ArgumentParser(add_help=False)
        shared.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help=_("print JSON objects for programs")
        )
        command.add_to(actions, shared)


def _list(_args: argparse.Namespace, context: Context) -> int:
    tokens = context.client.tokens()
    head = [_("ID"), _("Kind"), _("Name"), _("Scopes"), _("Created"), _("Last used"), _("Expires"), ""]
    rows = [
        [
            token["id"],
            token["kind"],
            token["name"] or "-",
            " ".join(token["scopes"]),
            time_text(token["createdAt"]),
            time_text(token["lastUsedAt"]) if token["lastUsedAt"] else "-",
            time_text(token["expiresAt"]),
            _("(this one)") if token["current"] else "",
        ]
        for token in tokens
    ]
    context.out.emit({"tokens": tokens}, table(head, rows))
    return 0


def _revoke(args: argparse.Namespace, context: Context) -> int:
    context.client.revoke_token(args.id)
    context.out.emit({"revoked": args.id}, _("Revoked {id}.").format(id=args.id))
    return 0


_ACTIONS = (
    Command("list", lambda: _("list live tokens"), _list),
    Command("revoke", lambda: _("revoke a token"), _revoke, lambda parser: _id_argument(parser)),
)


def _id_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar=_("TOKEN-ID"), help=_("as `token list` shows it"))


def _no_action(_args: argparse.Namespace, _context: Context) -> int:
    raise AssertionError("argparse requires an action")


COMMANDS = (Command("token", lambda: _("list or revoke tokens"), _no_action, _arguments),)
