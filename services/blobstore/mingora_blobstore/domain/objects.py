"""What an object is: its states, its kinds, and how it is cut into parts."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN, COMPLETE, CORRUPT = "open", "complete", "corrupt"
INPUT, RESULT = "input", "result"
KINDS = (INPUT, RESULT)

# Bytes. A part is read into memory whole, so its size bounds what a request takes.
PART_SIZE = 2 * 1024 * 1024
# Keeps every part index far inside 32 bits, whatever limits an operator gives an account.
MAX_OBJECT_BYTES = 1 << 40
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as its row tells it; sizes in bytes, times in milliseconds."""

    id: str
    account_id: str
    kind: str
    size: int
    sha256: str
    part_size: int
    state: str
    generation: int
    created_at: int
    touched_at: int
    completed_at: int | None

    @property
    def parts(self) -> int:
        """How many parts it has: 0 for an empty object."""
        return -(-self.size // self.part_size)

    def part_bytes(self, index: int) -> int:
        """The exact size of part ``index`` (from 0): ``part_size``, and for the last one the rest."""
        return min(self.part_size, self.size - index * self.part_size)


@dataclass(frozen=True, slots=True)
class PartKey:
    """Names the bytes of one part. Two senders of different bytes have different keys, so neither can overwrite the
    other; and bytes of a corrupt object's earlier upload (``generation``) are never taken for those of the new one."""

    object_id: str
    generation: int
    index: int
    sha256: str


def is_sha256(value: object) -> bool:
    """Whether ``value`` is 64 lower-case hex characters."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
