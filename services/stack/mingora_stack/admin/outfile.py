"""A file that is there whole or not at all, also after a power cut."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mingora_api.admin.session import AdminError


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Write ``path``, its owner's alone; it gets its name when every byte is on the disk.

    Until then it is called ``….partial``. A run that was killed leaves that behind, and the next one begins it anew.

    Raises:
        AdminError: ``path`` exists, or another process is writing it.
    """
    if path.exists():
        raise AdminError(f"{path} exists already. Name another file.")
    partial = path.with_name(path.name + ".partial")
    with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AdminError(f"Another process is writing {path}.") from None
        try:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.rename(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
