"""Writing so that what was written is there after a power cut."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that aren't there, and make their names durable; one that exists is fine."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make a file's content durable, its name not."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace(path: Path, data: bytes) -> None:
    """Make a small file hold ``data``: what was there before or all of it, whenever it is read."""
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def allocate(file: BinaryIO, size: int) -> None:
    """Reserve ``size`` bytes: a full disk is an OSError here, and not a killed process at a write to a memory map."""
    os.posix_fallocate(file.fileno(), 0, size)


class Lines:
    """An append-only file of one JSON object a line. A last line that a crash cut short is taken off when it is opened.

    Not safe for threads by itself.
    """

    def __init__(self, path: Path) -> None:
        created = not path.exists()
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if created:
            sync_folder(path.parent)
        os.ftruncate(self._number, _whole_lines(self._number))

    def append(self, entry: dict[str, Any], *, durable: bool) -> None:
        """Add a line; when ``durable``, it is on the disk once this returns. After an OSError nothing is left of it."""
        end = os.fstat(self._number).st_size
        line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        try:
            if os.write(self._number, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fdatasync(self._number)
        except OSError:
            os.ftruncate(self._number, end)
            raise

    def close(self) -> None:
        """What is appended later is an OSError: the number is soon another file's."""
        os.close(self._number)
        self._number = -1


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a :class:`Lines` file, also while it is written; none when there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def last_line(path: Path) -> dict[str, Any] | None:
    """The last whole line of a :class:`Lines` file that isn't written any more; None when there is none."""
    try:
        number = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        end = _whole_lines(number)
        start = _line_end_before(number, end - 1)
        found: dict[str, Any] | None = json.loads(os.pread(number, end - start, start)) if end else None
    finally:
        os.close(number)
    return found


def _whole_lines(number: int) -> int:
    """How many of a file's bytes are whole lines."""
    return _line_end_before(number, os.fstat(number).st_size)


def _line_end_before(number: int, end: int) -> int:
    """Where the last line ends that ends at byte ``end`` or before; 0 when none does."""
    while end > 0:
        start = max(0, end - 4096)
        found = os.pread(number, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
