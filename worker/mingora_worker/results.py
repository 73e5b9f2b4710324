"""Finds what a job left under `results/` without trusting any of it (WORK-3).

Only regular files with one name are taken. They are opened from folder to folder by descriptor and without following
links, so that neither a link nor a pipe nor a device leads elsewhere or blocks; what is refused is said, and the
rest is kept. Paths are relative to `results/`.
"""

from __future__ import annotations

import contextlib
import hashlib
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
    """`files` sorted by path, and why others were refused."""

    files: list[LocalFile] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refuse(self, path: str, why: str) -> None:
        self.refused.append(f"{printable(path)[:300]}: {why}")

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

    path: Path
    descriptor: int | None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self.descriptor is None else self.descriptor))  # noqa: PTH208

    def stat(self, name: str) -> os.stat_result:
        if self.descriptor is None:
            return os.lstat(self.path / name)
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[int]:
        if self.descriptor is None:
            descriptor = os.open(self.path / name, _FLAGS)
        else:
            descriptor = os.open(name, _FLAGS, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[_Folder]:
        if self.descriptor is None:
            yield _Folder(self.path / name, None)
            return
        descriptor = os.open(name, _FLAGS | _DIRECTORY, dir_fd=self.descriptor)
        try:
            yield _Folder(self.path / name, descriptor)
        finally:
            os.close(descriptor)


def collect(project: Path, *, check: Callable[[], object] = lambda: None) -> Collected:
    """The files under `project/results`, hashed. `check` is called between steps and may raise.

    Raises `TooManyFiles`.
    """
    found = Collected()
    with contextlib.suppress(FileNotFoundError), _opened(project) as top:
        info = top.stat(FOLDER)
        if stat.S_ISDIR(info.st_mode) and not _is_junction(info):
            with top.folder(FOLDER) as folder:
                _gather(folder, "", found, check)
        else:
            found.refuse(FOLDER, _("is no folder"))
    found.files.sort(key=lambda file: file.path)
    _drop_clashes(found)
    return found


@contextlib.contextmanager
def _opened(project: Path) -> Iterator[_Folder]:
    if not _BY_DESCRIPTOR:
        yield _Folder(project, None)
        return
    descriptor = os.open(project, _FLAGS | _DIRECTORY)
    try:
        yield _Folder(project, descriptor)
    finally:
        os.close(descriptor)


def _gather(folder: _Folder, prefix: str, found: Collected, check: Callable[[], object]) -> None:
    """Takes every entry of `folder`. The path rule bounds the depth."""
    for name in folder.names():
        path = prefix + name
        if len(found.refused) > MAX_FILES:
            raise TooManyFiles
        wrong = path_problem(path)
        if path == PARTIAL:
            wrong = _("the name is kept for unfinished downloads")
        if wrong is not None:
            found.refuse(path, wrong)
            continue
        try:
            info = folder.stat(name)
            if stat.S_ISDIR(info.st_mode) and not _is_junction(info):
                with folder.folder(name) as inner:
                    _gather(inner, path + "/", found, check)
            elif stat.S_ISREG(info.st_mode):
                _take(folder, name, path, found, check)
            else:
                found.refuse(path, _("is a link, a pipe or a device"))
        except OSError as error:
            found.refuse(path, _("can't be read: {reason}").format(reason=error.strerror))


def _take(folder: _Folder, name: str, path: str, found: Collected, check: Callable[[], object]) -> None:
    if len(found.files) >= MAX_FILES:
        raise TooManyFiles
    with folder.file(name) as descriptor:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            found.refuse(path, _("is a link, a pipe or a device"))
            return
        if info.st_nlink > 1:
            found.refuse(path, _("has more than one name (a hard link); copy it instead"))
            return
        if info.st_size > SPARSE_BYTES and getattr(info, "st_blocks", info.st_size) * 512 < info.st_size / SPARSE_SHARE:
            found.refuse(path, _("is a huge file of almost nothing but holes"))
            return
        digest, size = hashlib.sha256(), 0
        check()
        while block := os.read(descriptor, BLOCK):
            digest.update(block)
            size += len(block)
            if size > info.st_size:
                found.refuse(path, _("grew while it was read"))
                return
            check()
    executable = os.name != "nt" and bool(info.st_mode & stat.S_IXUSR)
    found.files.append(LocalFile(path, folder.path / name, size, digest.hexdigest(), executable, info.st_mtime_ns))


def _drop_clashes(found: Collected) -> None:
    """Leaves out what can't be beside another everywhere, so that the rest can be downloaded."""
    while pairs := clashes(file.path for file in found.files):
        dropped = {second: first for first, second in pairs}
        for path, other in sorted(dropped.items()):
            found.refuse(path, _("differs from {other} only by case or Unicode form").format(other=printable(other)))
        found.files = [f for f in found.files if not dropped.keys() & _with_folders(f.path)]


def _with_folders(path: str) -> set[str]:
    """The path itself and every folder that it is in."""
    parts = path.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}


def _is_junction(info: os.stat_result) -> bool:
    tag = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return tag is not None and getattr(info, "st_reparse_tag", 0) == tag
