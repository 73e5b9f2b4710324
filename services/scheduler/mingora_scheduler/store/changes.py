"""What a transaction changed for others: told after the commit, as wake-ups and hints."""

from __future__ import annotations

from dataclasses import dataclass, field

from mingora_common.hints import Hints
from mingora_common.wake import Waker


@dataclass(slots=True)
class Changes:
    """Collected inside a transaction, announced after it. An announcement that gets lost costs time, never truth."""

    topics: set[str] = field(default_factory=set)
    ended_attempts: set[str] = field(default_factory=set)
    place_for: set[str] = field(default_factory=set)
    placements: int = 0
    leases_lost: int = 0

    def announce(self, waker: Waker, hints: Hints) -> None:
        if self.topics:
            waker.wake(sorted(self.topics))
        for account_id in sorted(self.place_for):
            hints.place(account_id)
        for attempt_id in sorted(self.ended_attempts):
            hints.archive_log(attempt_id)
        if self.placements or self.leases_lost:
            hints.count(placements=self.placements, leases_lost=self.leases_lost)
