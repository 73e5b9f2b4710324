"""The life of one round: whose result is taken, and when it closes. No clock, no files, no locks of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mingora_coordinator.domain.settings import Settings


class Refusal(Enum):
    """Why a well-formed result isn't taken, in the order in which it is asked."""

    OVER = "over"
    OTHER_ROUND = "other_round"
    REPEATED = "repeated"
    FULL = "full"
    NOT_ASKED = "not_asked"


class Closing(Enum):
    """What closed a round."""

    COUNT = "count"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A recorded result.

    Attributes:
        worker: the nickname it came under.
        file: its name in the round's folder of results.
        digest: SHA-256 of the stored file, hex.
        size: of what was received, in bytes.
        data_start: where in the stored file the numbers begin.
        distance: Euclidean norm of result minus global adapter.
        fits: whether the exact sum takes it.
        seconds: from the request's head to the last byte of its body.
    """

    worker: str
    file: str
    digest: str
    size: int
    data_start: int
    distance: float
    fits: bool
    seconds: float

    @property
    def order(self) -> tuple[str, str]:
        """Where it stands among a round's results, whenever it arrived."""
        return (self.digest, self.worker)


@dataclass(slots=True)
class Round:
    """The open round.

    A result is reserved before it is recorded: of two that arrive together under one nickname, or of more than the
    round takes, the later is refused while the earlier is on its way to the disk.

    Attributes:
        number: the round.
        opened: seconds on the clock of the caller.
        must_ask: a nickname has to ask for its task before it sends. A number that is used a second time (after a
            rollback) would otherwise take results that were trained for the first.
    """

    number: int
    opened: float
    must_ask: bool = False
    accepted: dict[str, Accepted] = field(default_factory=dict)
    _reserved: set[str] = field(default_factory=set)
    _closing: bool = False

    def refusal(self, worker: str, number: int, settings: Settings, *, asked: bool) -> Refusal | None:
        """Why this result isn't taken; None when it is."""
        if self.number >= settings.rounds:
            return Refusal.OVER
        if number != self.number:
            return Refusal.OTHER_ROUND
        if worker in self.accepted or worker in self._reserved:
            return Refusal.REPEATED
        if self._closing or len(self.accepted) + len(self._reserved) >= settings.min_results:
            return Refusal.FULL
        return Refusal.NOT_ASKED if self.must_ask and not asked else None

    def reserve(self, worker: str) -> None:
        """A result that isn't refused begins to be recorded."""
        self._reserved.add(worker)

    def release(self, worker: str) -> None:
        """It could not be recorded; the place is free again."""
        self._reserved.discard(worker)

    def accept(self, result: Accepted) -> None:
        """It is recorded."""
        self._reserved.discard(result.worker)
        self.accepted[result.worker] = result

    def has_result_of(self, worker: str) -> bool:
        """Whether its result of this round is there, or on its way to the disk."""
        return worker in self.accepted or worker in self._reserved

    def deadline(self, settings: Settings) -> float:
        """When the round closes with fewer results than it needs."""
        return self.opened + settings.timeout if settings.timeout else float("inf")

    def due(self, now: float, settings: Settings) -> Closing | None:
        """Why the round is to close now; None when it isn't."""
        if self._closing or self.number >= settings.rounds or not self.accepted:
            return None
        if len(self.accepted) >= settings.min_results:
            return Closing.COUNT
        return Closing.TIME if now >= self.deadline(settings) else None

    def close(self) -> None:
        """Nothing more is taken; what is reserved may still be recorded (:attr:`settled`)."""
        self._closing = True

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def settled(self) -> bool:
        """Whether no result is on its way to the disk."""
        return not self._reserved
