"""The state machine of one attempt: a job's group of ranks, each under a lease of its own.

An attempt: reserved → running → succeeded | failed | cancelled, with ``stopping`` in between while ranks must be told
to end. A lease: reserved → claimed → ready → running → reported, or lost (its worker went silent), or released (taken
back before a worker knew of it). All ranks start together or none does, and a terminal state never changes.

A reservation that nobody claims isn't a failure of the job: such an attempt ends as ``not_claimed``, doesn't count
against ``retry.max``, and the job is queued again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mingora_scheduler.domain.leases import CLAIM_DEADLINE, LEASE_TTL, STOP_DEADLINE


class State(StrEnum):
    """Of an attempt."""

    RESERVED = "reserved"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RankState(StrEnum):
    """Of a lease."""

    RESERVED = "reserved"
    CLAIMED = "claimed"
    READY = "ready"
    RUNNING = "running"
    REPORTED = "reported"
    LOST = "lost"
    RELEASED = "released"


class Outcome(StrEnum):
    """What a rank's report says of its work."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
ENDED = frozenset({RankState.REPORTED, RankState.LOST, RankState.RELEASED})
NOT_CLAIMED, CANCELLED, LEASE_LOST = "not_claimed", "cancelled", "lease_lost"
READY_LATE, WORKER_STOPPED, PEER_FAILED = "ready_deadline", "worker_stopped", "peer_failed"
ENGINE_LOST = "engine_lost"


class Refused(Exception):
    """The event doesn't fit the state; nothing changes."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an attempt or a rank ended: one of the protocol's codes, and a text for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank says at its end. ``usage`` is unverified; ``results`` are file entries."""

    outcome: Outcome
    reason: Reason | None = None
    exit_code: int | None = None
    signal: int | None = None
    results: tuple[dict[str, Any], ...] = ()
    usage: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank and its lease. Times are milliseconds since the epoch."""

    rank: int
    lease_id: str
    node_id: str
    node_name: str
    state: RankState
    expires_at: int
    ready_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    reason: Reason | None = None
    report: Report | None = None

    @property
    def live(self) -> bool:
        return self.state not in ENDED


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt with all its ranks. ``cause`` is why it is being stopped or how it ended."""

    number: int
    state: State
    ranks: tuple[Rank, ...]
    created_at: int
    ready_deadline_at: int
    stop_deadline_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    cause: Reason | None = None

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def live(self) -> tuple[Rank, ...]:
        return tuple(rank for rank in self.ranks if rank.live)


def stop_told(state: str, cause: str | None) -> str | None:
    """What a rank of an attempt in ``state`` is told when it must end: ``cause`` is the code of the attempt's."""
    if state != State.STOPPING:
        return None
    return cause if cause in (CANCELLED, READY_LATE) else PEER_FAILED


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """A node's claim picked the reservation up."""

    rank: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A rank's inputs are staged and verified. ``warnings`` tell the job's owner under what it will run."""

    rank: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A rank's process runs."""

    rank: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A rank reports its end."""

    rank: int
    report: Report


@dataclass(frozen=True, slots=True)
class Expired:
    """Look at the clock: leases, the deadline for readiness and the one for stopping."""


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """The node of a rank has been removed from the account."""

    rank: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants the job to end."""


Event = Claimed | Ready | Started | Reported | Expired | NodeRemoved | CancelRequested


@dataclass(frozen=True, slots=True)
class Note:
    """An effect: a line of the job's history (``docs/protocol.md`` lists the types)."""

    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """The state after an event, and its effects in order."""

    attempt: Attempt
    notes: tuple[Note, ...] = ()


def apply(attempt: Attempt, event: Event, now: int) -> Step:
    """The attempt after ``event`` at ``now`` (milliseconds). Raises :class:`Refused` when the event doesn't fit."""
    if isinstance(event, (Claimed, Ready, Started, Reported)):
        rank = _live_rank(attempt, event.rank)
        if rank.expires_at <= now:
            raise Refused
        return _HANDLERS[type(event)](attempt, event, now)
    if attempt.terminal:
        return Step(attempt)
    return _HANDLERS[type(event)](attempt, event, now)


def _claimed(attempt: Attempt, event: Claimed, now: int) -> Step:
    rank = attempt.ranks[event.rank]
    if attempt.state is not State.RESERVED or rank.state is not RankState.RESERVED:
        raise Refused
    claimed = replace(rank, state=RankState.CLAIMED, expires_at=now + LEASE_TTL)
    return Step(_with(attempt, claimed), (_of_rank("lease.claimed", attempt, claimed),))


def _ready(attempt: Attempt, event: Ready, now: int) -> Step:
    rank = attempt.ranks[event.rank]
    if rank.state is RankState.RESERVED:
        raise Refused
    if rank.state is not RankState.CLAIMED:
        return Step(attempt)
    ready = replace(rank, state=RankState.READY, ready_at=now)
    attempt = _with(attempt, ready)
    notes: tuple[Note, ...] = (_of_rank("lease.ready", attempt, ready),)
    notes += tuple(_of_rank("job.warning", attempt, ready, message=text) for text in event.warnings)
    if attempt.state is State.RESERVED and all(each.state is RankState.READY for each in attempt.ranks):
        attempt = replace(attempt, state=State.RUNNING, started_at=now)
        notes += (Note("attempt.started", {"attempt": attempt.number}),)
    return Step(attempt, notes)


def _started(attempt: Attempt, event: Started, now: int) -> Step:
    rank = attempt.ranks[event.rank]
    if attempt.started_at is None:
        raise Refused
    if rank.state is RankState.RUNNING:
        return Step(attempt)
    return Step(_with(attempt, replace(rank, state=RankState.RUNNING, started_at=now)))


def _reported(attempt: Attempt, event: Reported, now: int) -> Step:
    rank, report = attempt.ranks[event.rank], event.report
    if rank.state is RankState.RESERVED or (report.outcome is Outcome.SUCCEEDED and attempt.started_at is None):
        raise Refused
    reason = None if report.outcome is Outcome.SUCCEEDED else _failure(attempt, report)
    ended = replace(rank, state=RankState.REPORTED, ended_at=now, report=report, reason=reason)
    attempt = _with(attempt, ended)
    data = {"outcome": report.outcome.value, "exitCode": report.exit_code, "signal": report.signal}
    notes = [_of_rank("lease.reported", attempt, ended, **data)]
    notes += [_of_rank("job.warning", attempt, ended, message=text) for text in report.warnings]
    if reason is None:
        return _settle(attempt, notes, now)
    return _stop(attempt, reason, notes, now)


def _expired(attempt: Attempt, _event: Expired, now: int) -> Step:
    stuck = attempt.stop_deadline_at is not None and attempt.stop_deadline_at <= now
    notes: list[Note] = []
    cause: Reason | None = None
    for rank in attempt.live:
        if stuck or rank.expires_at <= now:
            attempt, reason = _lose(attempt, rank, "went silent", notes, now)
            # A lost worker weighs more than a reservation that nobody picked up: it is the job's failure.
            cause = reason if cause is None or cause.code == NOT_CLAIMED else cause
    if cause is None and attempt.state is State.RESERVED and attempt.ready_deadline_at <= now:
        late = [str(rank.rank) for rank in attempt.ranks if rank.state is not RankState.READY]
        cause = Reason(READY_LATE, f"Not every rank was ready in time: rank {', '.join(late)}.")
    if cause is None:
        return Step(attempt)
    return _stop(attempt, cause, notes, now)


def _node_removed(attempt: Attempt, event: NodeRemoved, now: int) -> Step:
    rank = attempt.ranks[event.rank]
    if not rank.live:
        return Step(attempt)
    notes: list[Note] = []
    attempt, reason = _lose(attempt, rank, "was removed", notes, now)
    return _stop(attempt, reason, notes, now)


def _cancel_requested(attempt: Attempt, _event: CancelRequested, now: int) -> Step:
    if attempt.state is State.STOPPING:
        return Step(attempt)
    return _stop(attempt, Reason(CANCELLED, "The job was cancelled."), [], now)


_HANDLERS: dict[type, Callable[[Attempt, Any, int], Step]] = {
    Claimed: _claimed,
    Ready: _ready,
    Started: _started,
    Reported: _reported,
    Expired: _expired,
    NodeRemoved: _node_removed,
    CancelRequested: _cancel_requested,
}


def _stop(attempt: Attempt, cause: Reason, notes: list[Note], now: int) -> Step:
    """End the group for ``cause``, unless it is ending for an earlier one: what no worker knows of goes at once."""
    if attempt.state is not State.STOPPING:
        attempt = replace(attempt, state=State.STOPPING, cause=cause, stop_deadline_at=now + STOP_DEADLINE)
        for rank in attempt.ranks:
            if rank.state is RankState.RESERVED:
                attempt = _with(attempt, replace(rank, state=RankState.RELEASED, ended_at=now, reason=cause))
        if attempt.live:
            notes.append(Note("attempt.stopping", {"attempt": attempt.number, "reason": _rendered(cause)}))
    return _settle(attempt, notes, now)


def _settle(attempt: Attempt, notes: list[Note], now: int) -> Step:
    """The attempt ends when its last rank has."""
    if attempt.live:
        return Step(attempt, tuple(notes))
    succeeded = all(rank.report is not None and rank.report.outcome is Outcome.SUCCEEDED for rank in attempt.ranks)
    cause = None if succeeded else attempt.cause
    state = State.SUCCEEDED
    if cause is not None:
        state = State.CANCELLED if cause.code == CANCELLED else State.FAILED
    attempt = replace(attempt, state=state, cause=cause, ended_at=now)
    data = {"attempt": attempt.number, "state": state.value, "reason": cause and _rendered(cause)}
    return Step(attempt, (*notes, Note("attempt.finished", data)))


def _lose(attempt: Attempt, rank: Rank, how: str, notes: list[Note], now: int) -> tuple[Attempt, Reason]:
    if rank.state is RankState.RESERVED:
        seconds = CLAIM_DEADLINE // 1000
        reason = Reason(NOT_CLAIMED, f"The worker {rank.node_name} didn't pick the job up within {seconds} seconds.")
        return _with(attempt, replace(rank, state=RankState.RELEASED, ended_at=now, reason=reason)), reason
    reason = Reason(LEASE_LOST, f"The worker {rank.node_name} {how} while it had the job.")
    lost = replace(rank, state=RankState.LOST, ended_at=now, reason=reason)
    notes.append(_of_rank("lease.lost", attempt, lost))
    return _with(attempt, lost), reason


def _failure(attempt: Attempt, report: Report) -> Reason:
    """Why a rank didn't succeed. Only the platform cancels: a worker that ends unasked has stopped, no more."""
    said = report.reason
    if said is not None and (said.code != CANCELLED or attempt.state is State.STOPPING):
        return said
    if said is not None or report.outcome is Outcome.CANCELLED:
        return Reason(WORKER_STOPPED, "The worker ended the job.")
    if report.signal is not None:
        return Reason("signal", f"The job was ended by signal {report.signal}.")
    if report.exit_code is not None:
        return Reason("exit_code", f"The job exited with code {report.exit_code}.")
    return Reason("worker_error", "The worker couldn't run the job.")


def _live_rank(attempt: Attempt, number: int) -> Rank:
    if attempt.terminal or not 0 <= number < len(attempt.ranks) or not attempt.ranks[number].live:
        raise Refused
    return attempt.ranks[number]


def _with(attempt: Attempt, rank: Rank) -> Attempt:
    ranks = (*attempt.ranks[: rank.rank], rank, *attempt.ranks[rank.rank + 1 :])
    return replace(attempt, ranks=ranks)


def _of_rank(kind: str, attempt: Attempt, rank: Rank, **more: Any) -> Note:
    where = {"attempt": attempt.number, "rank": rank.rank, "nodeId": rank.node_id, "nodeName": rank.node_name}
    if rank.reason is not None:
        more["reason"] = _rendered(rank.reason)
    return Note(kind, {**where, **more})


def _rendered(reason: Reason) -> dict[str, str]:
    return {"code": reason.code, "message": reason.message}
