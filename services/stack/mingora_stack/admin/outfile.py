"""A file that is there whole or not at all, also after a power cut."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mingora_api.admin.session import AdminError
from mingora_stack.folder import sync_folder


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Write ``path``, its owner's alone; it gets its name when every byte is on the disk.

    Until then it is called ``….partial``. A run that was killed leaves that behind, and the next one begins it anew.

    Raises:
        AdminError: ``path`` exists or was made meanwhile, another process is writing it, or its ``.partial`` isn't
            what an earlier run has left.
    """
    taken = AdminError(f"{path} exists already. Name another file.")
    if path.exists():
        raise taken
    partial = path.with_name(path.name + ".partial")
    with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb") as file:
        _claim(file, path, partial)
        try:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(partial, path)  # unlike a rename it never replaces a file
            except FileExistsError:
                raise taken from None
        finally:
            partial.unlink(missing_ok=True)
    sync_folder(path.absolute().parent)


def _claim(file: BinaryIO, path: Path, partial: Path) -> None:
    """Lock the open ``partial``, and see that no other name and no other user reaches what is written to it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AdminError(f"Another process is writing {path}.") from None
    info = os.fstat(file.fileno())
    if info.st_nlink == 0 or not _names(partial, info):  # who held the lock before has finished it, or given it up
        raise AdminError(f"Another process was writing {path}. Try again.")
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_nlink != 1:
        raise AdminError(f"{partial} wasn't left by an earlier export of yours. Delete it, or name another file.")
    os.fchmod(file.fileno(), 0o600)


def _names(path: Path, info: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), info)
    except FileNotFoundError:
        return False
