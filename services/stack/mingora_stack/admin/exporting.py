"""Writes a whole platform into an archive while it goes on working.

Rows and bytes lie in two systems, so which is read first matters: bytes are written before their row and removed after
it. Most bytes are read first, without holding anybody up, and again those that came meanwhile, until few come. Then
content is held still for a moment, a snapshot of the rows begins, and what it names and hasn't been sent is copied
aside: whoever takes the archive may be slow, and uploads mustn't wait for that. So every row of the archive has its
bytes, and nothing of it belongs to two different moments. Bytes without a row aren't taken along.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import sqlalchemy as sa

from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.content import PIECE
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.clock import Clock, rfc3339
from mingora_common.db import migrate
from mingora_common.db.engine import Database
from mingora_stack.admin import rows
from mingora_stack.admin.archive import Writer
from mingora_stack.admin.keyset import KeySet
from mingora_stack.admin.progress import Progress

MAX_LOST = 10_000
# Passes over all parts end with one that found at most so many new ones, of at most 2 MiB each; or they are too many:
# uploads come faster than the archive is taken, and no further pass would change that.
FEW_PARTS, MAX_PASSES = 8, 10


class ExportError(Exception):
    """The platform can't be exported; the message names the fix."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive holds; ``lost_parts`` the platform itself had lost before."""

    parts: int
    part_bytes: int
    rows: int
    lost_parts: int


class Exporter:
    """One run over a platform and its content; ``scratch`` is a folder with room for temporary files."""

    def __init__(self, database: Database, content: SqliteContent, clock: Clock, software: str, scratch: Path) -> None:
        self._scratch = scratch
        self._database = database
        self._content = content
        self._clock = clock
        self._software = software
        self._lost: list[PartKey] = []
        self._progress = Progress("Exported")

    def run(self, stream: BinaryIO) -> Exported:
        """Write the archive; raises ``ExportError``, and ``OSError`` when the stream takes no more."""
        now = self._clock.now()
        manifest = {
            "software": self._software,
            "schema": migrate.head(),
            "exportedAt": rfc3339(now),
            "tables": rows.columns(),
        }
        writer = Writer(stream, manifest, now)
        with (
            KeySet(self._scratch) as sent,
            tempfile.TemporaryFile(dir=self._scratch) as aside,
            contextlib.ExitStack() as held,
        ):
            self._send_most(writer, sent)
            with self._content.frozen():
                snapshot = held.enter_context(self._database.snapshot())
                late = self._copy_late(snapshot, sent, aside)
            aside.seek(0)
            for key, size in late:
                self._add(writer, key, aside.read(size))
            for name, table in rows.TABLES.items():
                writer.table(name, rows.read(snapshot, table))
        writer.end(self._lost)
        return Exported(writer.parts, writer.part_bytes, sum(writer.rows.values()), len(self._lost))

    def _send_most(self, writer: Writer, sent: KeySet) -> None:
        """Without holding anything still. What is gone by the time it is read isn't missed: the snapshot decides."""
        for _ in range(MAX_PASSES):
            before = writer.parts
            self._send_new(writer, sent)
            if writer.parts - before <= FEW_PARTS:
                return

    def _send_new(self, writer: Writer, sent: KeySet) -> None:
        """One pass over all parts; it skips those that were sent."""
        after: tuple[str, int] | None = None
        while True:
            with self._database.read() as connection:
                page = rows.part_page(connection, after)
            for key, size in page:
                if key not in sent and (data := self._read(key, size)) is not None:
                    self._add(writer, key, data)
                    sent.add(key)
            if len(page) < rows.PAGE:
                return
            after = (page[-1][0].object_id, page[-1][0].index)

    def _copy_late(self, snapshot: sa.Connection, sent: KeySet, aside: IO[bytes]) -> list[tuple[PartKey, int]]:
        """Copy the bytes of all parts that the snapshot names and that weren't sent; which they are, in that order."""
        late = []
        for key, size in rows.named_parts(snapshot):
            if key in sent:
                continue
            data = self._read(key, size)
            if data is None:
                self._note_lost(key)
            else:
                aside.write(data)
                late.append((key, size))
        return late

    def _read(self, key: PartKey, size: int) -> bytes | None:
        """A part's bytes; None when they aren't there or aren't those that its digest names."""
        pieces = [self._content.read(key, offset, PIECE) or b"" for offset in range(0, size, PIECE)]
        data = b"".join(pieces)
        if len(data) != size or hashlib.sha256(data).hexdigest() != key.sha256:
            return None
        return data

    def _add(self, writer: Writer, key: PartKey, data: bytes) -> None:
        writer.part(key, data)
        self._progress.add(len(data))

    def _note_lost(self, key: PartKey) -> None:
        self._lost.append(key)
        if len(self._lost) > MAX_LOST:
            raise ExportError(
                "Most of the content isn't there. Check that MINGORA_CONTENT_FILE names this platform's content file."
            )
