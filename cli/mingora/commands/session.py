"""login, logout, whoami: exchanging a password for a token, and giving the token back (AUTH-2, AUTH-3)."""

from __future__ import annotations

import argparse
import os
import sys

from mingora.commands.context import Command, Context
from mingora.errors import ApiError, NotLoggedIn, OutcomeUnknown, UsageProblem
from mingora.i18n import _
from mingora.output import pairs, time_text

MAX_PASSWORD_BYTES = 4096


def _login_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--identifier", metavar=_("NAME"), help=_("the account's name; asked for when left out"))
    parser.add_argument(
        "--server", metavar="URL", help=_("the platform's address; by default MINGORA_URL or the last one")
    )
    parser.add_argument("--ca-file", metavar=_("FILE"), help=_("trust this authority's certificate (PEM) and no other"))
    parser.add_argument("--password-stdin", action="store_true", help=_("read the password from standard input"))


def _login(args: argparse.Namespace, context: Context) -> int:
    import platform

    from mingora import credentials
    from mingora.transport import Transport

    path = credentials.config_path()
    server, ca_file = _server(args, path)
    with Transport(server, ca_file=ca_file) as transport:  # refuses an unsafe address before a password is asked for
        name = args.identifier or _ask_name(args.password_stdin)
        body = {"identifier": name, "password": _password(args.password_stdin), "name": platform.node()[:100]}
        try:
            data = transport.request_json("POST", "/tokens", body=body).data
        except OutcomeUnknown as error:
            again = _("Log in again.")
            if transport.server.scheme == "http":  # a server that speaks HTTPS hangs up without a word
                again = _("Log in again; if the server speaks HTTPS, by its https:// address.")
            raise OutcomeUnknown(error.message, error.cause, hint=again) from error
    account = data["account"]["name"]
    login = credentials.Credentials(
        transport.server.origin, data["token"], ca_file, account, data["id"], data["expiresAt"]
    )
    credentials.save(login, path)
    result = {"account": data["account"], "server": login.server, "expiresAt": data["expiresAt"], "file": str(path)}
    text = _("Logged in to {server} as {account} until {time}.")
    context.out.emit(result, text.format(server=login.server, account=account, time=time_text(data["expiresAt"])))
    return 0


def _server(args: argparse.Namespace, path: object) -> tuple[str, str | None]:
    """The address and CA file to use: arguments, then the environment, then the last login."""
    from pathlib import Path

    from mingora import credentials

    server = args.server or os.environ.get("MINGORA_URL")
    ca_file = args.ca_file or os.environ.get("MINGORA_CA_FILE")
    if server is None:
        try:
            saved = credentials.stored(Path(str(path)))
        except NotLoggedIn:
            saved = None
        if saved is None:
            raise UsageProblem(_("Which server? Name it with --server URL."))
        server, ca_file = saved.server, ca_file or saved.ca_file
    if ca_file is not None:
        ca_file = str(Path(ca_file).expanduser().resolve())
        if not Path(ca_file).is_file():
            raise UsageProblem(_("The CA file {path} does not exist.").format(path=ca_file))
    return server, ca_file


def _ask_name(password_stdin: bool) -> str:
    if password_stdin or not sys.stdin.isatty():
        raise UsageProblem(_("Which account? Name it with --identifier NAME."))
    print(_("Account name: "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _password(from_stdin: bool) -> str:
    if from_stdin:
        text = sys.stdin.readline(MAX_PASSWORD_BYTES).rstrip("\r\n")
    elif sys.stdin.isatty():
        import getpass

        text = getpass.getpass(_("Password: "))
    else:
        raise UsageProblem(_("There is no terminal to ask for the password."), hint=_("Give it with --password-stdin."))
    if not text:
        raise UsageProblem(_("The password is empty."))
    return text


def _logout(_args: argparse.Namespace, context: Context) -> int:
    """Revokes the stored token and forgets it; a token that is already dead is forgotten all the same."""
    from mingora import credentials
    from mingora.client import Client
    from mingora.transport import Transport

    path = credentials.config_path()
    saved = credentials.stored(path)
    if saved is None:
        context.out.emit({"loggedOut": False}, _("Not logged in."))
        return 0
    with Transport(saved.server, ca_file=saved.ca_file, token=saved.token) as transport:
        client = Client(transport=transport)
        try:
            client.revoke_token(saved.token_id or client.account()["token"]["id"])
        except ApiError as error:
            if error.code not in {"invalid_token", "not_found"}:
                raise
    credentials.forget(path)
    context.out.emit({"loggedOut": True}, _("Logged out; the token is revoked."))
    return 0


def _whoami(_args: argparse.Namespace, context: Context) -> int:
    account = context.client.account()
    token = account["token"]
    rows = [
        (_("Account"), account["name"]),
        (_("Tenant"), account["tenant"]),
        (_("Server"), context.client.transport.server.origin),
        (_("Scopes"), " ".join(token["scopes"])),
        (_("Expires"), time_text(token["expiresAt"])),
    ]
    context.out.emit({"account": account, "server": context.client.transport.server.origin}, pairs(rows))
    return 0


COMMANDS = (
    Command("login", lambda: _("log in to a platform on this machine"), _login, _login_arguments),
    Command("logout", lambda: _("revoke this machine's token and forget it"), _logout),
    Command("whoami", lambda: _("show the account and token in use"), _whoami),
)
