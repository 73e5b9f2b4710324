"""Where a login is kept: `~/.mingora-research.json`, readable by its owner alone (AUTH-3).

MINGORA_CONFIG names another file; MINGORA_URL, MINGORA_TOKEN and MINGORA_CA_FILE override what it says.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mingora import faults
from mingora.durable import make_folder, sync_folder
from mingora.errors import NotLoggedIn, UsageProblem
from mingora.i18n import _

FILE_NAME = ".mingora-research.json"
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Credentials:
    """`expires_at` is RFC 3339; None when unknown (a token from the environment)."""

    server: str
    token: str
    ca_file: str | None = None
    account: str | None = None
    token_id: str | None = None
    expires_at: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(server={self.server!r}, account={self.account!r})"


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    env = os.environ if environ is None else environ
    named = env.get("MINGORA_CONFIG")
    return Path(named) if named else Path.home() / FILE_NAME


def stored(path: Path) -> Credentials | None:
    """The login in the file; None without a file. A file others can read is made private first, and said so."""
    try:
        with path.open("rb") as file:
            _keep_private(path, file.fileno())
            raw = json.loads(file.read(MAX_FILE_BYTES + 1))
        fields = {name: raw.get(name) for name in Credentials.__dataclass_fields__}
        if not all(value is None or isinstance(value, str) for value in fields.values()):
            raise ValueError
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotLoggedIn(_("{path} can't be read: {reason}").format(path=path, reason=error.strerror)) from error
    except (ValueError, AttributeError) as error:
        raise NotLoggedIn(
            _("{path} is not a login file.").format(path=path), hint=_("Log in again: mingora login")
        ) from error
    if not (fields["server"] and fields["token"]):
        raise NotLoggedIn(_("{path} is not a login file.").format(path=path), hint=_("Log in again: mingora login"))
    return Credentials(**fields)


def load(environ: Mapping[str, str] | None = None) -> Credentials:
    """The login in force. Raises `NotLoggedIn` without one.

    A server named by MINGORA_URL that isn't the stored one never gets the stored token.
    """
    env = os.environ if environ is None else environ
    url, token, ca_file = (env.get(name) or None for name in ("MINGORA_URL", "MINGORA_TOKEN", "MINGORA_CA_FILE"))
    if url and token:
        return Credentials(url, token, ca_file)
    saved = stored(config_path(env))
    if saved is None:
        raise NotLoggedIn(_("Not logged in."), hint=_("Log in first: mingora login --identifier NAME --server URL"))
    if url and _origin(url) != _origin(saved.server):
        raise NotLoggedIn(
            _("The stored login belongs to {server}, not to MINGORA_URL.").format(server=saved.server),
            hint=_("Log in there: mingora login --server {url}").format(url=url),
        )
    if token:
        return Credentials(saved.server, token, ca_file or saved.ca_file)
    return replace(saved, ca_file=ca_file or saved.ca_file)


def save(credentials: Credentials, path: Path) -> None:
    """Writes the file whole or not at all; nobody else can read it at any moment."""
    try:
        make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # mode 600 from the start
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(credentials), file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            faults.point("login/write")
            Path(temporary).replace(path)
            sync_folder(path.parent)
            faults.point("login/written")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageProblem(_("{path} can't be written: {reason}").format(path=path, reason=error.strerror)) from error


def forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _keep_private(path: Path, handle: int) -> None:
    if os.name == "nt":
        return
    info = os.fstat(handle)
    if info.st_uid != os.geteuid() and os.geteuid() != 0:
        raise NotLoggedIn(_("{path} belongs to another user.").format(path=path))
    if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.fchmod(handle, 0o600)
        text = _("Others could read {path}; it is private now. Log in again if somebody may have copied the token.")
        print(text.format(path=path), file=sys.stderr)


def _origin(server: str) -> str:
    from mingora.server import parse_server

    return parse_server(server).origin.lower()
