"""The content port: where parts' bytes lie. tests/contract/test_blob_content.py holds every implementation to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mingora_blobstore.domain.objects import PartKey

# The most bytes that one read takes.
PIECE = 1024 * 1024


class ContentStore(Protocol):
    """Bytes by :class:`PartKey`. A method that can't reach the bytes raises ``unavailable``."""

    def put(self, key: PartKey, data: bytes, now: int) -> None:
        """Store ``data`` durably; on the disk when this returns. Storing again replaces bytes and time."""

    def sizes(self, keys: Sequence[PartKey]) -> list[int | None]:
        """The number of bytes stored under each of ``keys``; None where there is nothing."""

    def read(self, key: PartKey, offset: int, length: int) -> bytes | None:
        """Up to ``length`` (at most ``PIECE``) bytes from ``offset``; None where there is nothing."""

    def delete(self, key: PartKey) -> None:
        """Remove one part, if it is there."""

    def delete_object(self, object_id: str, generation: int) -> None:
        """Remove every part of one upload of an object."""

    def older(self, than: int, after: int, limit: int) -> list[tuple[int, PartKey]]:
        """Parts stored before ``than``, each with its position; in order of position, those past ``after``."""

    def delete_older(self, key: PartKey, than: int) -> bool:
        """Remove one part unless it was stored (again) at ``than`` or later; whether it went."""

    def compact(self) -> None:
        """Give space of removed parts back to the machine."""

    def ping(self) -> None:
        """Raise when the content can't be reached."""
