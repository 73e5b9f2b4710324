"""Reading stored content in pieces, each part held against its digest before a byte of it goes out.

Nothing is held between pieces: neither a lock nor a connection, whatever the client's speed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

import sqlalchemy as sa
import structlog

from mingora_blobstore.domain.objects import PartKey, StoredObject
from mingora_blobstore.store.content import PIECE, ContentStore
from mingora_blobstore.store.objects import Objects
from mingora_blobstore.store.removal import Removal
from mingora_common.db.engine import Database
from mingora_common.db.schema import parts
from mingora_common.errors import OBJECT_CORRUPT, ServiceError

# Part rows read at a time.
ROWS = 256

_log = structlog.get_logger()


class ContentLost(Exception):
    """Stored content is missing or isn't what was stored; the answer under way is broken off."""


class Reader:
    """Serves spans of objects and re-computes digests."""

    def __init__(self, database: Database, content: ContentStore, removal: Removal) -> None:
        self._database = database
        self._content = content
        self._removal = removal
        self._objects = Objects(database)

    def open(self, item: StoredObject, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from ``start`` to ``stop`` of a complete object, in pieces of at most ``PIECE``.

        That the span's parts are there (the first ``ROWS`` of them), and the first one's digest, is checked before
        this returns.

        Raises:
            ServiceError: ``object_corrupt``; the object is marked so. When a later part turns out wrong, the iterator
                raises :class:`ContentLost`: too late for another status, so the connection breaks.
        """
        spans = self._spans(item, start, stop)
        try:
            first = next(spans, b"")
        except ContentLost:
            self._objects.find(item.account_id, item.id)  # deleted meanwhile: not_found
            raise ServiceError(OBJECT_CORRUPT) from None
        return _pieces(first, spans)

    def digest(self, item: StoredObject) -> str | None:
        """SHA-256 of the whole content as it lies there; None when bytes are missing or don't add up."""
        whole, total = hashlib.sha256(), 0
        for keys in self._batches(item, 0, item.parts - 1):
            for key in keys:
                for piece in self._pieces_of(item, key):
                    whole.update(piece)
                    total += len(piece)
        return whole.hexdigest() if total == item.size else None

    def _spans(self, item: StoredObject, start: int, stop: int) -> Iterator[bytes]:
        """What lies between ``start`` and ``stop`` of each part, one after the other."""
        if start >= stop:
            return
        index, last = start // item.part_size, (stop - 1) // item.part_size
        for keys in self._batches(item, index, last):
            if not self._are_there(item, keys):
                self._lost(item, index)
            for key in keys:
                data = b"".join(self._pieces_of(item, key))
                if key.index != index or hashlib.sha256(data).hexdigest() != key.sha256:
                    self._lost(item, index)
                begin = index * item.part_size
                yield data[max(0, start - begin) : stop - begin]
                index += 1
        if index <= last:
            self._lost(item, index)

    def _lost(self, item: StoredObject, index: int) -> NoReturn:
        _log.error("content_lost", object=item.id, generation=item.generation, part=index)
        self._removal.corrupt(item)
        raise ContentLost

    def _are_there(self, item: StoredObject, keys: Sequence[PartKey]) -> bool:
        return self._content.sizes(keys) == [item.part_bytes(key.index) for key in keys]

    def _pieces_of(self, item: StoredObject, key: PartKey) -> Iterator[bytes]:
        for offset in range(0, item.part_bytes(key.index), PIECE):
            yield self._content.read(key, offset, PIECE) or b""

    def _batches(self, item: StoredObject, first: int, last: int) -> Iterator[list[PartKey]]:
        """The keys of the parts from ``first`` to ``last`` that have rows, in order."""
        columns = (parts.c.object_id, sa.literal(item.generation), parts.c.idx, parts.c.sha256)
        while first <= last:
            until = min(last, first + ROWS - 1)
            query = sa.select(*columns).where(parts.c.object_id == item.id, parts.c.idx.between(first, until))
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(parts.c.idx)).all()
            yield [PartKey(*row) for row in rows]
            first = until + 1


def _pieces(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    data: bytes | None = first
    while data is not None:
        view = memoryview(data)
        for offset in range(0, len(view), PIECE):
            yield bytes(view[offset : offset + PIECE])
        data = next(rest, None)
