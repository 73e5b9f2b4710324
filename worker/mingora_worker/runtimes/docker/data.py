"""Local data that jobs in containers may read (WORK-8): what must not be among it, and what they couldn't read."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from mingora.errors import UsageProblem
from mingora_worker.runtimes.docker.user import User, own_uid
from mingora_worker.texts import _

DEFAULT_SOCKET = "/var/run/docker.sock"


def refuse_dangerous(data: Mapping[str, Path], root: Path, environ: Mapping[str, str] | None = None) -> None:
    """Raises `UsageProblem` for data with the engine's socket or the worker's own folder in it.

    A read-only mount doesn't keep a socket from being spoken to, and the worker's folder holds its tokens.
    """
    for name, path in data.items():
        for secret in (root, _socket(os.environ if environ is None else environ)):
            if secret is not None and _overlap(path.resolve(), secret.resolve()):
                text = _("--data {name}: jobs in containers must not see {path}, which is in it or around it.")
                raise UsageProblem(
                    text.format(name=name, path=secret),
                    hint=_("Offer another folder, or move the worker's by --root."),
                )


def unreadable(data: Mapping[str, Path], user: User) -> list[str]:
    """Names of data that the containers' user, where it isn't the worker's own, has no right to read."""
    if user.uid == own_uid():
        return []
    return [name for name, path in data.items() if not _open_to_others(path)]


def _overlap(path: Path, secret: Path) -> bool:
    return path == secret or path in secret.parents or secret in path.parents


def _socket(environ: Mapping[str, str]) -> Path | None:
    host = urlsplit(environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}")
    return Path(host.path) if host.scheme == "unix" else None


def _open_to_others(path: Path) -> bool:
    mode = path.stat().st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted
