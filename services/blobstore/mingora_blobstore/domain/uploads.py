"""The rule of a part: stored once, never changed; the same bytes again succeed."""

from __future__ import annotations

from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, StoredObject
from mingora_common.errors import INVALID_REQUEST, OBJECT_CORRUPT, OBJECT_FROZEN, PART_CONFLICT, ErrorKind, ServiceError

# No object has as many parts: objects.MAX_OBJECT_BYTES in the smallest parts.
NO_PART = 10**9


def refusal(state: str, stored_sha256: str | None, sha256: str) -> ErrorKind | None:
    """Why bytes of digest ``sha256`` can't be a part of an object in ``state`` whose part (if any) is
    ``stored_sha256``; None when they can, or already are."""
    if state == CORRUPT:
        return OBJECT_CORRUPT
    if stored_sha256 == sha256:
        return None
    if state == COMPLETE:
        return OBJECT_FROZEN
    return None if stored_sha256 is None else PART_CONFLICT


def part_index(text: str) -> int:
    """The number of a part that a path names; one past every object's parts for what isn't a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else NO_PART


def check_index(index: int, stored: StoredObject) -> None:
    """Raise ``invalid_request`` unless the object has a part ``index``."""
    if index >= stored.parts:
        raise ServiceError(INVALID_REQUEST, f"The object has {stored.parts} parts, counted from 0.", field="index")
