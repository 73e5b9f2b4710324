"""Byte ranges as RFC 9110 section 14 states them, for one range."""

from __future__ import annotations

import re

_SPEC = re.compile(r"bytes=[ \t]*([0-9]{0,100})-([0-9]{0,100})[ \t]*", re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range is well formed and lies outside the content."""


def requested(header: str | None, if_range: str | None, etag: str, size: int) -> tuple[int, int] | None:
    """The span ``(start, stop)`` that a GET asks for, or None for the whole content.

    Args:
        header: the ``Range`` header. A malformed one, one of another unit, and one of several ranges is passed over.
        if_range: the ``If-Range`` header; unless it is ``etag`` itself (a strong one), the range is passed over.
        size: of the content in bytes.

    Raises:
        Unsatisfiable: answer 416.
    """
    match = _SPEC.fullmatch(header.strip()) if header else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = match.groups()
    if first:
        return _from_first(int(first), int(last) if last else None, size)
    return _suffix(int(last), size) if last else None


def _from_first(first: int, last: int | None, size: int) -> tuple[int, int] | None:
    if last is not None and last < first:
        return None
    if first >= size:
        raise Unsatisfiable
    return first, size if last is None else min(last + 1, size)


def _suffix(length: int, size: int) -> tuple[int, int] | None:
    if length == 0:
        raise Unsatisfiable
    return (max(0, size - length), size) if size else None


def none_match(header: str | None, etag: str) -> bool:
    """Whether ``If-None-Match`` names ``etag`` (compared weakly), so that 304 is the answer to a read."""
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags
