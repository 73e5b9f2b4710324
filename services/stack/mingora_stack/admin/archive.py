"""The archive of a whole platform: a tar file that any tar program lists, and whose end vouches for all before it.

Members, in this order (docs/operations.md describes them for people):

1. ``mingora.json``: format and version, the software and schema that wrote it, every table's columns;
2. ``content/OBJECT/GENERATION/INDEX-SHA256``: the bytes of one stored part;
3. ``tables/NAME/NUMBER.jsonl``: rows, one JSON array a line in the order of the columns, binary columns in base64;
4. ``end.json``: how much there is of each, and the SHA-256 over every earlier member's name, size and bytes.

It is written and read as a stream: memory holds one member at a time.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from mingora_blobstore.domain.objects import PartKey

FORMAT, VERSION = "mingora-archive", 1
MANIFEST, END = "mingora.json", "end.json"
# Bytes. A part has at most 2 MiB; rows are cut into members of about 4 MiB, and one row has at most some MiB.
MAX_MEMBER = 64 * 1024 * 1024
ROWS_MEMBER = 4 * 1024 * 1024
# Bytes. What may come before a member's own: its header, the longer one for a long name, and what tarfile reads ahead.
_MAX_HEADER = 256 * 1024

_PART = re.compile(r"content/(obj_[A-Za-z0-9_-]{8,64})/([0-9]{1,9})/([0-9]{1,9})-([0-9a-f]{64})")
_ROWS = re.compile(r"tables/([a-z_]{1,60})/[0-9]{6,12}\.jsonl")
_OBJECT_ID, _SHA256 = re.compile(r"obj_[A-Za-z0-9_-]{8,64}"), re.compile(r"[0-9a-f]{64}")
# What tarfile and json raise over bytes that somebody made up.
_DAMAGE = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)


class ArchiveError(Exception):
    """The archive can't be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of one stored part; they have the digest that the key names."""

    key: PartKey
    data: bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table, in the order of the manifest's columns."""

    table: str
    rows: list[list[Any]]


class Writer:
    """Writes an archive to a stream that needn't be seekable. Call :meth:`end` when all has been written."""

    def __init__(self, stream: BinaryIO, manifest: Mapping[str, Any], now: int) -> None:
        self._tar = tarfile.TarFile(fileobj=cast(BinaryIO, _Onward(stream)), mode="w", format=tarfile.PAX_FORMAT)
        self._digest = hashlib.sha256()
        self._mtime = now // 1000
        self._members = 0
        self.parts = self.part_bytes = 0
        self.rows: dict[str, int] = {}
        self._add(MANIFEST, _json({"format": FORMAT, "version": VERSION, **manifest}))

    def part(self, key: PartKey, data: bytes) -> None:
        """Add a part, of which the digest has been checked."""
        self._add(f"content/{key.object_id}/{key.generation}/{key.index}-{key.sha256}", data)
        self.parts += 1
        self.part_bytes += len(data)

    def table(self, name: str, rows: Iterator[Sequence[Any]]) -> None:
        """Add all rows of a table; values are JSON's."""
        self.rows[name] = 0
        batch = io.BytesIO()
        for row in rows:
            batch.write(_json(row) + b"\n")
            self.rows[name] += 1
            if batch.tell() >= ROWS_MEMBER:
                self._add_rows(name, batch)
        if batch.tell():
            self._add_rows(name, batch)

    def end(self, lost: Sequence[PartKey]) -> None:
        """Write the end, which names parts that the platform itself had lost."""
        names = [[key.object_id, key.generation, key.index, key.sha256] for key in lost]
        counted = {"parts": self.parts, "partBytes": self.part_bytes, "rows": self.rows, "lostParts": names}
        self._add(END, _json({**counted, "sha256": self._digest.hexdigest()}))
        self._tar.close()

    def _add_rows(self, table: str, batch: io.BytesIO) -> None:
        self._members += 1
        self._add(f"tables/{table}/{self._members:06}.jsonl", batch.getvalue())
        batch.seek(0)
        batch.truncate()

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(data), self._mtime, 0o600
        self._tar.addfile(member, io.BytesIO(data))
        _forget(self._tar)
        _count(self._digest, name, data)


class _Onward:
    """A stream that can't be seeked, as tarfile writes to one."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position


class _Bounded:
    """A stream of which only so much may be read: tarfile takes a header into memory whole, whatever its size."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.left = _MAX_HEADER

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise ArchiveError("The archive is damaged or altered: a header in it is far too large.")
        return data


class Reader:
    """Reads an archive once, from its beginning to its end.

    Raises:
        ArchiveError: it isn't one, or of another version.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._digest = hashlib.sha256()
        self._stream = _Bounded(stream)
        try:
            self._tar = tarfile.open(  # noqa: SIM115 - the stream is the caller's
                fileobj=cast(BinaryIO, self._stream), mode="r|"
            )
            name, data = self._next()
        except _DAMAGE as error:
            raise ArchiveError("This isn't an archive of Mingora.") from error
        self.manifest = _object(data) if name == MANIFEST else {}
        if self.manifest.get("format") != FORMAT:
            raise ArchiveError("This isn't an archive of Mingora.")
        if self.manifest.get("version") != VERSION:
            raise ArchiveError(
                f"The archive has format version {self.manifest.get('version')}, and this software reads version "
                f"{VERSION}. Use Mingora {self.manifest.get('software')} or newer."
            )
        self.end: dict[str, Any] = {}
        self.lost: list[PartKey] = []

    def members(self) -> Iterator[Part | Rows]:
        """Everything between manifest and end, checked; when this is exhausted the archive is known to be whole.

        Raises:
            ArchiveError: it is cut off or has been altered.
        """
        parts = part_bytes = 0
        rows: dict[str, int] = {}
        try:
            while (read := self._next())[0] != END:
                member = _member(*read)
                if isinstance(member, Part):
                    parts, part_bytes = parts + 1, part_bytes + len(member.data)
                else:
                    rows[member.table] = rows.get(member.table, 0) + len(member.rows)
                yield member
            self.end = _object(read[1])
            self.lost = _lost(self.end)
            self._stream.left = _MAX_HEADER
            if self._tar.next() is not None:
                raise ArchiveError("The archive goes on after its end.")
        except _DAMAGE as error:
            raise ArchiveError(f"The archive is damaged or cut off: {error}") from error
        counted = {"parts": parts, "partBytes": part_bytes, "rows": rows}
        stated = {name: self.end.get(name) for name in ("parts", "partBytes")}
        stated["rows"] = {name: count for name, count in self.end["rows"].items() if count}
        if counted != stated or self.end.get("sha256") != self._before_end:
            raise ArchiveError("The archive has been altered: its contents don't match its end.")

    def _next(self) -> tuple[str, bytes]:
        self._stream.left = _MAX_HEADER
        member = self._tar.next()
        _forget(self._tar)
        if member is None:
            raise ArchiveError("The archive is cut off: its end is missing.")
        if not member.isreg() or member.issparse() or self._tar.pax_headers or not 0 <= member.size <= MAX_MEMBER:
            raise ArchiveError(f"The archive holds something that doesn't belong there: {member.name[:200]!r}")
        self._stream.left = member.size + _MAX_HEADER
        file = self._tar.extractfile(member)
        data = b"" if file is None else file.read()
        if len(data) != member.size:
            raise ArchiveError("The archive is cut off in the middle.")
        self._before_end = self._digest.hexdigest()
        _count(self._digest, member.name, data)
        return member.name, data


def _member(name: str, data: bytes) -> Part | Rows:
    part = _PART.fullmatch(name)
    if part is not None:
        if hashlib.sha256(data).hexdigest() != part[4]:
            raise ArchiveError(f"The archive has been altered: {name} isn't what its name says.")
        return Part(PartKey(part[1], int(part[2]), int(part[3]), part[4]), data)
    rows = _ROWS.fullmatch(name)
    if rows is None:
        raise ArchiveError(f"The archive holds something that doesn't belong there: {name[:200]!r}")
    parsed = [json.loads(line, parse_constant=_no_number) for line in data.splitlines()]
    if not all(isinstance(row, list) for row in parsed):
        raise ArchiveError(f"The archive is damaged: {name} doesn't hold rows.")
    return Rows(rows[1], parsed)


def _lost(end: Mapping[str, Any]) -> list[PartKey]:
    """The parts that the end names as lost; raises ValueError when the end hasn't the shape of one."""
    counts, lost = end.get("rows"), end.get("lostParts")
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        raise ValueError("its end doesn't count the rows")
    if not isinstance(lost, list) or not all(_is_key(entry) for entry in lost):
        raise ValueError("its end doesn't name the parts that were lost")
    return [PartKey(*entry) for entry in lost]


def _is_key(entry: Any) -> bool:
    match entry:
        case [str(object_id), int(generation), int(index), str(sha256)]:
            numbers = all(0 <= number < 1 << 31 for number in (generation, index))
            return bool(numbers and _OBJECT_ID.fullmatch(object_id) and _SHA256.fullmatch(sha256))
    return False


def _no_number(name: str) -> float:
    raise ValueError(f"{name} isn't JSON")


def _forget(tar: tarfile.TarFile) -> None:
    """Else it remembers every member that went by."""
    tar.members.clear()  # type: ignore[attr-defined]


def _count(digest: Any, name: str, data: bytes) -> None:
    digest.update(f"{name}\0{len(data)}\0".encode())
    digest.update(data)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArchiveError("This isn't an archive of Mingora.") from error
    if not isinstance(value, dict):
        raise ArchiveError("This isn't an archive of Mingora.")
    return value
