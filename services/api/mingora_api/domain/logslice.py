"""Cutting a range of bytes out of stored log chunks, without ever holding more than the range and one chunk."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

_STEP = 64 * 1024


class Chunk(NamedTuple):
    """Stored log bytes: ``start`` and ``size`` count raw bytes, ``data`` is raw or compressed by zlib (``codec``)."""

    start: int
    size: int
    codec: str
    data: bytes


def cut(chunks: Iterable[Chunk], offset: int, end: int) -> bytes:
    """The bytes from ``offset`` up to ``end`` or the first gap; ``chunks`` come in order of ``start``."""
    taken = bytearray()
    for chunk in chunks:
        at = offset + len(taken)
        if at >= end or chunk.start > at:
            break
        if chunk.start + chunk.size > at:
            taken += _inside(chunk, at - chunk.start, min(end - chunk.start, chunk.size))
    return bytes(taken)


def _inside(chunk: Chunk, first: int, last: int) -> bytes:
    if chunk.codec == "raw":
        return chunk.data[first:last]
    if chunk.codec == "zlib":
        return _inflate(chunk.data, first, last)
    raise ValueError(f"unknown log codec {chunk.codec!r}")


def _inflate(data: bytes, first: int, last: int) -> bytes:
    inflater = zlib.decompressobj()
    taken, position, rest = bytearray(), 0, data
    while position < last and not inflater.eof:
        piece = inflater.decompress(rest, min(_STEP, last - position))
        rest = inflater.unconsumed_tail
        if not piece and not rest:
            break
        taken += piece[max(0, first - position) :]
        position += len(piece)
    return bytes(taken)
