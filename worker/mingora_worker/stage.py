"""Fetches a job's inputs and makes sure that they are the ones that were submitted (WORK-3)."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mingora.errors import ApiError, IntegrityError, MingoraError, ResultConflict
from mingora.transfer import download_files
from mingora.transport import Transport
from mingora_worker.api import transient
from mingora_worker.texts import _

# Left free beside the inputs: for the log and whatever the job writes first.
MARGIN_BYTES = 128 * 1024 * 1024


class StageFailed(MingoraError):
    """The inputs can't be had; `code` is one of the protocol's reasons."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def inputs_digest(entries: Sequence[dict[str, Any]]) -> str:
    """SHA-256 (hex) of the canonical list `[[path, size, sha256, executable], …]`, sorted by path.

    The list is JSON without spaces, in UTF-8, not escaped.
    """
    rows = sorted([e["path"], e["size"], e["sha256"], e["executable"]] for e in entries)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def stage(
    transport: Transport,
    entries: Sequence[dict[str, Any]],
    digest: str,
    project: Path,
    *,
    check: Callable[[], None],
    pause: Callable[[float], object],
) -> str:
    """Puts the inputs into `project` and returns their digest.

    `check` is called with every step and may raise; `pause` is slept with. Raises `StageFailed`; errors of the
    network, and the loss of the lease, go through.
    """
    _check_list(entries, digest)
    _check_space(entries, project)
    try:
        paths = download_files(
            transport, entries, project, progress=lambda _done, _total: check(), sleep=pause, overwrite=True
        )
    except (IntegrityError, ResultConflict) as error:
        raise StageFailed("input_corrupt", error.message) from error
    except ApiError as error:
        if transient(error) or error.status == 401:
            raise
        code = "input_corrupt" if error.code == "object_corrupt" else "inputs_unavailable"
        raise StageFailed(code, error.message) from error
    except OSError as error:
        raise StageFailed("disk_full", _("The inputs can't be written: {reason}").format(reason=error)) from error
    for entry, path in zip(entries, paths, strict=True):
        if path.lstat().st_size != entry["size"]:
            raise StageFailed("input_corrupt", _("{path} has another size than stated.").format(path=entry["path"]))
    return inputs_digest(entries)


def _check_list(entries: Sequence[dict[str, Any]], digest: str) -> None:
    try:
        fits = all(
            isinstance(e["path"], str)
            and isinstance(e["objectId"], str)
            and isinstance(e["size"], int)
            and isinstance(e["executable"], bool)
            for e in entries
        )
        fits = fits and inputs_digest(entries) == digest
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise StageFailed("input_corrupt", _("The list of inputs is not the one that was submitted."))


def _check_space(entries: Sequence[dict[str, Any]], project: Path) -> None:
    needed = sum(entry["size"] for entry in entries) + MARGIN_BYTES
    free = shutil.disk_usage(project).free
    if free < needed:
        text = _("The inputs need {needed} MiB on the disk; {free} MiB are free.")
        raise StageFailed("disk_full", text.format(needed=needed >> 20, free=free >> 20))
