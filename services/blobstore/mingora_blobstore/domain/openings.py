"""The rule of opening an object: what a request may ask for, and whether the account has room for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mingora_blobstore.domain.objects import EMPTY_SHA256, KINDS, MAX_OBJECT_BYTES, is_sha256
from mingora_common.auth import Limits
from mingora_common.errors import FILE_TOO_LARGE, INVALID_REQUEST, QUOTA_EXCEEDED, ServiceError

FIELDS = ("size", "sha256", "kind")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Content that a client has and wants stored."""

    size: int
    sha256: str
    kind: str

    @classmethod
    def parse(cls, item: Any, kinds: tuple[str, ...] = KINDS) -> Wanted:
        """Read ``{"size", "sha256", "kind"}``; raises ``invalid_request`` naming the field. ``kinds`` are allowed."""
        if not isinstance(item, dict):
            raise ServiceError(INVALID_REQUEST, "An object is asked for by size, sha256 and kind.")
        unknown = sorted(set(item) - set(FIELDS))
        if unknown:
            raise ServiceError(INVALID_REQUEST, f"Unknown field: {unknown[0][:100]}", field=unknown[0][:100])
        size, sha256, kind = (item.get(name) for name in FIELDS)
        if type(size) is not int or not 0 <= size <= 2**53:
            raise ServiceError(INVALID_REQUEST, "size must be a whole number of bytes, 0 or more.", field="size")
        if not is_sha256(sha256):
            raise ServiceError(INVALID_REQUEST, "sha256 must be 64 lower-case hex characters.", field="sha256")
        if size == 0 and sha256 != EMPTY_SHA256:
            raise ServiceError(INVALID_REQUEST, "That isn't the sha256 of 0 bytes.", field="sha256")
        if kind not in kinds:
            raise ServiceError(INVALID_REQUEST, f"kind must be one of: {', '.join(kinds)}.", field="kind")
        return cls(size, str(sha256), str(kind))

    @property
    def key(self) -> tuple[str, int]:
        """What makes two requests the same content."""
        return self.sha256, self.size


class Room:
    """What is left of an account's limits while its openings are decided one after the other."""

    def __init__(self, used_bytes: int, used_files: int, limits: Limits) -> None:
        self._used_bytes, self._used_files, self._limits = used_bytes, used_files, limits
        self.taken_bytes = self.taken_files = 0

    def take(self, size: int) -> None:
        """Reserve a file of ``size`` bytes; raises ``file_too_large`` or ``quota_exceeded`` and takes nothing."""
        limits = self._limits
        largest = min(limits.max_file_bytes, MAX_OBJECT_BYTES)
        if size > largest:
            raise ServiceError(FILE_TOO_LARGE, allowed=largest)
        files, used = self._used_files + self.taken_files, self._used_bytes + self.taken_bytes
        if files + 1 > limits.max_files:
            raise ServiceError(QUOTA_EXCEEDED, limit="maxFiles", allowed=limits.max_files, used=files)
        if used + size > limits.max_bytes:
            raise ServiceError(QUOTA_EXCEEDED, limit="maxBytes", allowed=limits.max_bytes, used=used)
        self.taken_files += 1
        self.taken_bytes += size
