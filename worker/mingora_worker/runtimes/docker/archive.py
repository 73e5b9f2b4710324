"""Takes results out of the tar stream in which the engine hands over a container's folder, believing nothing of it.

The rules are those of `mingora_worker.results`. Each file's bytes go to a file whose name is ours; nothing is ever
unpacked by a name of the archive's.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from mingora.manifest import LocalFile
from mingora_worker.results import MAX_ENTRIES, MAX_FILES, Collected, TooManyFiles
from mingora_worker.runtimes.docker.output import OutputFailed, need_room
from mingora_worker.texts import _

BLOCK = 256 * 1024
# Between one file's bytes and the next there are names of at most 4,096 bytes and a few attributes.
MAX_HEADER_BYTES = 1 << 20
# A tmpfs stores a file in pages.
PAGE_BYTES = 4096
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass
class Contents:
    """What was taken. `size`: bytes of regular files in whole pages; `entries`: files and folders of every kind.

    `holes`: the path, below the folder, of a file so large that it is of holes; nothing behind it has been read.
    """

    found: Collected = field(default_factory=Collected)
    size: int = 0
    entries: int = 0
    holes: str | None = None


def take(chunks: Iterator[bytes], spool: Path, limit_bytes: int, check: Callable[[], object]) -> Contents:
    """The regular files of an archive of one folder, stored in `spool`, an empty folder.

    `limit_bytes`: what the folder can hold on its disk. `check` is called between steps and may raise. Raises
    `TooManyFiles`, `OutputFailed` for what is no such archive, and `OSError` when the files can't be stored.
    """
    stream = _Stream(chunks)
    taking = _Taking(stream, spool, limit_bytes, check)
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], stream), mode="r|", bufsize=BLOCK, tarinfo=_Entry, encoding="utf-8",
            errors="surrogateescape",
        ) as archive:  # fmt: skip
            while taking.contents.holes is None and (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # every entry would be remembered
                taking.entry(archive, member)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        text = _("The engine's archive of the results is damaged: {reason}")
        raise OutputFailed(text.format(reason=error)) from error
    taking.drop_linked()
    taking.contents.found.settle()
    return taking.contents


class _Entry(tarfile.TarInfo):
    """Takes only the mark of an archive's end for its end, which is otherwise whatever can't be understood."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:  # type: ignore[override]
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class _Stream:
    """The chunks as a file. A header that would fill the memory is refused."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk, self._at = b"", 0
        self.allowed = MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        if self._at == len(self._chunk):
            self._chunk, self._at = next(self._chunks, b""), 0
        block = self._chunk[self._at : self._at + size]
        self._at += len(block)
        self.allowed -= len(block)
        if self.allowed < 0:
            raise tarfile.ReadError(_("a header doesn't end"))
        return block


class _Taking:
    """One run through an archive."""

    def __init__(self, stream: _Stream, spool: Path, limit_bytes: int, check: Callable[[], object]) -> None:
        self.contents = Contents()
        self._stream = stream
        self._spool = spool
        self._limit = limit_bytes
        self._check = check
        self._refused_folders: set[str] = set()
        self._linked: set[str] = set()
        self._names: set[str] = set()

    def entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._check()
        self._stream.allowed = MAX_HEADER_BYTES
        path = _below_top(member.name)
        if not path:
            return
        self.contents.entries += 1
        if self.contents.entries > MAX_ENTRIES:
            raise TooManyFiles
        found = self.contents.found
        # What lies in a refused folder isn't refused one by one.
        admitted = path.rpartition("/")[0] not in self._refused_folders and found.admits(path)
        if member.type in _REGULAR and not member.issparse():
            self._file(archive, member, path, admitted)
        elif member.isdir():
            if not admitted:
                self._refused_folders.add(path)
        elif member.islnk():
            self._linked |= {path, _below_top(member.linkname)}
            if admitted:
                found.refuse(path, _("has more than one name (a hard link); copy it instead"))
        elif admitted:
            found.refuse(path, _("is a link, a pipe or a device"))

    def _file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, admitted: bool) -> None:
        contents, files = self.contents, self.contents.found.files
        if member.size < 0:
            raise tarfile.ReadError(_("a file has less than no bytes"))
        stored = whole_pages(member.size)
        if contents.size + stored > whole_pages(self._limit):
            contents.holes = path
            return
        contents.size += stored
        self._stream.allowed += member.size
        if not admitted:
            return
        if len(files) >= MAX_FILES:
            raise TooManyFiles
        if path in self._names:
            raise tarfile.ReadError(_("a name comes twice"))
        self._names.add(path)
        need_room(self._spool, stored)
        source = self._spool / str(len(files))
        digest = self._store(archive, member, source)
        info = source.stat()
        files.append(LocalFile(path, source, info.st_size, digest, bool(member.mode & 0o100), info.st_mtime_ns))

    def _store(self, archive: tarfile.TarFile, member: tarfile.TarInfo, source: Path) -> str:
        """SHA-256 (hex) of the member's bytes, which are in `source` then."""
        digest, left = hashlib.sha256(), member.size
        content = archive.extractfile(member)
        with source.open("xb") as file:
            while left:
                block = content.read(min(BLOCK, left)) if content is not None else b""
                if not block:
                    raise tarfile.ReadError(_("it breaks off"))
                digest.update(block)
                file.write(block)
                left -= len(block)
                self._check()
        return digest.hexdigest()

    def drop_linked(self) -> None:
        """A file's other names come after it."""
        found = self.contents.found
        for file in found.files:
            if file.path in self._linked:
                found.refuse(file.path, _("has more than one name (a hard link); copy it instead"))
        found.files = [file for file in found.files if file.path not in self._linked]


def whole_pages(size: int) -> int:
    """Bytes that a tmpfs takes for `size` of them."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _below_top(name: str) -> str:
    """The path below the archive's one folder."""
    return name.removeprefix("./").partition("/")[2]
