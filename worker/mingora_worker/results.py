"""Finds what a job left in a folder without trusting any of it (WORK-3, WORK-7).

Only regular files with one name are taken. They are opened from folder to folder by descriptor and without following
links, so that neither a link nor a pipe nor a device leads elsewhere or blocks; what is refused is said, and the
rest is kept. Paths are relative to the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mingora.download import PARTIAL
from mingora.manifest import BLOCK, LocalFile, printable
from mingora.paths import clashes, path_problem
from mingora_worker.texts import _

FOLDER = "results"
# A report's list has to fit a request of 4 MiB.
MAX_FILES = 5_000
MAX_WARNINGS = 20
# A folder of more isn't even listed.
MAX_ENTRIES = 200_000
# A larger file of which less than one part in SPARSE_SHARE lies on the disk is refused unread: a job can make one of
# any size in no time, and hashing a tebibyte of holes takes the best part of an hour.
SPARSE_BYTES = 1 << 30
SPARSE_SHARE = 100
_BY_DESCRIPTOR = sys.platform != "win32"
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class TooManyFiles(Exception):
    """More results than a report can list."""


@dataclass
class Collected:
    """`files` sorted by path, and why others were refused. `room`: bytes that more files may have, None for any."""

    files: list[LocalFile] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    room: int | None = None

    def refuse(self, path: str, why: str) -> None:
        self.refused.append(f"{printable(path)[:300]}: {why}")

    def admits(self, path: str) -> bool:
        """Whether a result may have this name; refuses it otherwise. Raises `TooManyFiles`."""
        if len(self.refused) > MAX_FILES:
            raise TooManyFiles
        wrong = path_problem(path)
        if path == PARTIAL:
            wrong = _("the name is kept for unfinished downloads")
        if wrong is not None:
            self.refuse(path, wrong)
        return wrong is None

    def takes(self, size: int) -> str | None:
        """Why a file of that size isn't read, None when there is room for it."""
        if self.room is None:
            return None
        if size > self.room:
            return _("is more than the output can hold, so it has holes")
        self.room -= size
        return None

    def settle(self) -> None:
        """Sorts the files and leaves out what can't be beside another everywhere, so the rest can be downloaded."""
        self.files.sort(key=lambda file: file.path)
        while pairs := clashes(file.path for file in self.files):
            dropped = {second: first for first, second in pairs}
            for path, other in sorted(dropped.items()):
                self.refuse(path, _("differs from {other} only by case or Unicode form").format(other=printable(other)))
            self.files = [f for f in self.files if not dropped.keys() & _with_folders(f.path)]

    @property
    def warnings(self) -> list[str]:
        """For people: as many of the refusals as a report takes, and how many there were."""
        if len(self.refused) <= MAX_WARNINGS:
            return self.refused
        more = len(self.refused) - MAX_WARNINGS + 1
        return [*self.refused[: MAX_WARNINGS - 1], _("and {count} more under results/").format(count=more)]


@dataclass(frozen=True)
class _Folder:
    """An open folder: what is in it is reached through the descriptor, where the system can, else by its path."""

    path: str
    descriptor: int | None

    def entries(self) -> list[os.DirEntry[str]]:
        """In the order of their names. Raises `TooManyFiles`."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as listing:
            found = list(itertools.islice(listing, MAX_ENTRIES + 1))
        if len(found) > MAX_ENTRIES:
            raise TooManyFiles
        return sorted(found, key=lambda entry: entry.name)

    def file(self, name: str) -> int:
        """A descriptor that the caller closes."""
        if self.descriptor is None:
            return os.open(os.path.join(self.path, name), _FLAGS)  # noqa: PTH118
        return os.open(name, _FLAGS, dir_fd=self.descriptor)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[_Folder]:
        path = os.path.join(self.path, name)  # noqa: PTH118
        if not _BY_DESCRIPTOR:
            yield _Folder(path, None)
            return
        descriptor = os.open(name, _FLAGS | _DIRECTORY, dir_fd=self.descriptor)
        try:
            yield _Folder(path, descriptor)
        finally:
            os.close(descriptor)


def collect(
    parent: Path, name: str = FOLDER, *, check: Callable[[], object] = lambda: None, most_bytes: int | None = None
) -> Collected:
    """The files under `parent/name`, hashed. `check` is called between steps and may raise.

    `most_bytes` is what the folder can hold: files of holes that say more would take an hour to read, and are refused.

    What this account may not read is refused: no rights are changed. Raises `TooManyFiles`, and `OSError` where
    `parent` itself isn't a folder that can be read.
    """
    found = Collected(room=most_bytes)
    with contextlib.suppress(FileNotFoundError), _opened(parent) as top:
        info = os.lstat(parent / name) if top.descriptor is None else os.lstat(name, dir_fd=top.descriptor)
        if stat.S_ISDIR(info.st_mode) and not _is_junction(info):
            with top.folder(name) as folder:
                _gather(folder, "", found, check)
        else:
            found.refuse(name, _("is no folder"))
    found.settle()
    return found


@contextlib.contextmanager
def _opened(parent: Path) -> Iterator[_Folder]:
    if not _BY_DESCRIPTOR:
        yield _Folder(os.fspath(parent), None)
        return
    descriptor = os.open(parent, _FLAGS | _DIRECTORY)
    try:
        yield _Folder(os.fspath(parent), descriptor)
    finally:
        os.close(descriptor)


def _gather(folder: _Folder, prefix: str, found: Collected, check: Callable[[], object]) -> None:
    """Takes every entry of `folder`. The path rule bounds the depth."""
    check()
    for entry in folder.entries():
        path = prefix + entry.name
        if not found.admits(path):
            continue
        try:
            if entry.is_dir(follow_symlinks=False) and not _leads_elsewhere(entry):
                with folder.folder(entry.name) as inner:
                    _gather(inner, path + "/", found, check)
            elif entry.is_file(follow_symlinks=False):
                _take(folder, entry.name, path, found, check)
            else:
                found.refuse(path, _("is a link, a pipe or a device"))
        except OSError as error:
            found.refuse(path, _("can't be read: {reason}").format(reason=error.strerror))


def _take(folder: _Folder, name: str, path: str, found: Collected, check: Callable[[], object]) -> None:
    if len(found.files) >= MAX_FILES:
        raise TooManyFiles
    descriptor = folder.file(name)
    try:
        info = os.fstat(descriptor)
        wrong = _file_problem(info) or found.takes(info.st_size)
        if wrong is None:
            digest, size = _hashed(descriptor, info.st_size, check)
            if size > info.st_size:
                wrong = _("grew while it was read")
    finally:
        os.close(descriptor)
    if wrong is not None:
        found.refuse(path, wrong)
        return
    executable = os.name != "nt" and bool(info.st_mode & stat.S_IXUSR)
    source = Path(folder.path, name)
    found.files.append(LocalFile(path, source, size, digest, executable, info.st_mtime_ns))


def _file_problem(info: os.stat_result) -> str | None:
    if not stat.S_ISREG(info.st_mode):
        return _("is a link, a pipe or a device")
    if info.st_nlink > 1:
        return _("has more than one name (a hard link); copy it instead")
    if info.st_size > SPARSE_BYTES and getattr(info, "st_blocks", info.st_size) * 512 < info.st_size / SPARSE_SHARE:
        return _("is a huge file of almost nothing but holes")
    return None


def _hashed(descriptor: int, expected: int, check: Callable[[], object]) -> tuple[str, int]:
    """SHA-256 (hex) and size; reading stops with the first byte beyond what is expected."""
    digest, size = hashlib.sha256(), 0
    check()
    while size <= expected and (block := os.read(descriptor, min(BLOCK, expected + 1 - size))):
        digest.update(block)
        size += len(block)
        check()
    return digest.hexdigest(), size


def _with_folders(path: str) -> set[str]:
    """The path itself and every folder that it is in."""
    parts = path.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}


def _leads_elsewhere(entry: os.DirEntry[str]) -> bool:
    return sys.platform == "win32" and _is_junction(entry.stat(follow_symlinks=False))


def _is_junction(info: os.stat_result) -> bool:
    tag = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return tag is not None and getattr(info, "st_reparse_tag", 0) == tag
