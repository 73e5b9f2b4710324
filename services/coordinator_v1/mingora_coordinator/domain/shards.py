"""Which slice of the data (parca) a worker trains on: the same for as long as the round lasts."""

from __future__ import annotations

import hashlib

# Beyond so many nicknames a round, which only somebody who makes them up reaches, a slice isn't remembered.
MAX_REMEMBERED = 10_000


class Shards:
    """The assignments of one round. A worker that doesn't come back has its slice for this round only."""

    def __init__(self, count: int) -> None:
        self._taken = [0] * count
        self._of: dict[str, int] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._of

    def __len__(self) -> int:
        return len(self._of)

    def restore(self, worker: str, shard: int) -> None:
        """An assignment from before a restart; one that no longer fits (the count was changed) is passed over."""
        if 0 <= shard < len(self._taken) and worker not in self._of:
            self._of[worker] = shard
            self._taken[shard] += 1

    def of(self, worker: str) -> tuple[int, bool]:
        """The worker's slice, and whether this is a new assignment to remember: the first of those least taken."""
        known = self._of.get(worker)
        if known is not None:
            return known, False
        if len(self._of) >= MAX_REMEMBERED:
            digest = hashlib.sha256(worker.encode("utf-8", "surrogatepass")).digest()
            return int.from_bytes(digest[:8], "big") % len(self._taken), False
        shard = self._taken.index(min(self._taken))
        self.restore(worker, shard)
        return shard, True
