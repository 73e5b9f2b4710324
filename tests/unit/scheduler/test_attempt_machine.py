"""The attempt's state machine under every order of events that hypothesis can think of."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mingora_scheduler.domain.attempt import (
    Attempt,
    CancelRequested,
    Claimed,
    Event,
    Expired,
    NodeRemoved,
    Note,
    Outcome,
    Rank,
    RankState,
    Ready,
    Reason,
    Refused,
    Report,
    Reported,
    Started,
    State,
    apply,
    stop_told,
)
from mingora_scheduler.domain.leases import CLAIM_DEADLINE, LEASE_TTL, READY_DEADLINE, STOP_DEADLINE

START = 1_000_000
CODES = ["exit_code", "cancelled", "worker_stopped", "peer_failed"]


def reserved(ranks: int, now: int = START) -> Attempt:
    """An attempt as placement makes it."""
    leases = tuple(
        Rank(rank, f"lease_{rank}", f"node_{rank}", f"n{rank}", RankState.RESERVED, now + CLAIM_DEADLINE)
        for rank in range(ranks)
    )
    return Attempt(1, State.RESERVED, leases, now, now + READY_DEADLINE)


def steps(attempt: Attempt, *events: Event, now: int = START) -> Attempt:
    for event in events:
        attempt = apply(attempt, event, now).attempt
    return attempt


class Machine(RuleBasedStateMachine):
    """Ranks that claim, get ready, start and report in any order, with time, cancels and removals in between."""

    @initialize(ranks=st.integers(1, 4))
    def begin(self, ranks: int) -> None:
        self.now = START
        self.attempt = reserved(ranks)
        self.notes: list[Note] = []
        self.renewed = False

    def _apply(self, event: Event) -> bool:
        before = self.attempt
        try:
            step = apply(before, event, self.now)
        except Refused:
            return False
        if before.terminal:
            assert step.attempt == before and step.notes == ()
        for old, new in zip(before.ranks, step.attempt.ranks, strict=True):
            assert old.live or old == new, "an ended lease changed"
        self.attempt = step.attempt
        self.notes += step.notes
        return True

    def _rank(self, data: Any) -> int:
        return int(data.draw(st.integers(0, len(self.attempt.ranks) - 1)))

    @rule(data=st.data(), kind=st.sampled_from([Claimed, Ready, Started, NodeRemoved]))
    def of_a_rank(self, data: Any, kind: Any) -> None:
        self._apply(kind(self._rank(data)))

    @rule(data=st.data(), outcome=st.sampled_from(Outcome), code=st.none() | st.sampled_from(CODES))
    def report(self, data: Any, outcome: Outcome, code: str | None) -> None:
        reason = None if code is None else Reason(code, "m")
        self._apply(Reported(self._rank(data), Report(outcome, reason, exit_code=1)))

    @rule()
    def cancel(self) -> None:
        self._apply(CancelRequested())

    @rule(seconds=st.sampled_from([1, 20, 31, 61, 601]), renew=st.booleans())
    def time_passes(self, seconds: int, renew: bool) -> None:
        """Heartbeats renew every claimed lease (as the store does), or nobody is heard from."""
        self.now += seconds * 1000
        if renew:
            ranks = tuple(
                rank
                if not rank.live or rank.state is RankState.RESERVED
                else Rank(**{**_fields(rank), "expires_at": self.now + LEASE_TTL})
                for rank in self.attempt.ranks
            )
            self.attempt = Attempt(**{**_fields(self.attempt), "ranks": ranks})
        self._apply(Expired())

    @invariant()
    def a_group_starts_together(self) -> None:
        started = [note for note in self.notes if note.type == "attempt.started"]
        assert len(started) <= 1
        ready_once = {note.data["rank"] for note in self.notes if note.type == "lease.ready"}
        assert not started or ready_once == set(range(len(self.attempt.ranks)))
        assert bool(started) == (self.attempt.started_at is not None)

    @invariant()
    def it_ends_exactly_once(self) -> None:
        finished = [note for note in self.notes if note.type == "attempt.finished"]
        assert len(finished) == (1 if self.attempt.terminal else 0)
        assert self.attempt.terminal == (self.attempt.ended_at is not None)
        assert self.attempt.terminal == (not self.attempt.live)

    @invariant()
    def success_means_all(self) -> None:
        if self.attempt.state is State.SUCCEEDED:
            reports = [rank.report for rank in self.attempt.ranks]
            assert all(report is not None and report.outcome is Outcome.SUCCEEDED for report in reports)
            assert self.attempt.cause is None
        elif self.attempt.terminal:
            assert self.attempt.cause is not None

    @invariant()
    def only_the_platform_cancels(self) -> None:
        if self.attempt.state is State.CANCELLED:
            assert self.attempt.cause is not None and self.attempt.cause.message == "The job was cancelled."

    @invariant()
    def each_lease_ends_with_one_note_at_most(self) -> None:
        ends = [note.data["rank"] for note in self.notes if note.type in ("lease.reported", "lease.lost")]
        assert len(ends) == len(set(ends))

    def teardown(self) -> None:
        """No sequence wedges: time alone ends a stopping attempt, whatever its workers go on saying."""
        if not hasattr(self, "attempt"):
            return
        if self.attempt.state in (State.RESERVED, State.RUNNING):
            self._apply(CancelRequested())
        self.now += STOP_DEADLINE
        self._apply(Expired())
        assert self.attempt.terminal


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestMachine = pytest.mark.req("JOB-3", "JOB-7")(Machine.TestCase)


@pytest.mark.req("JOB-3")
def test_ready_twice_changes_nothing() -> None:
    attempt = steps(reserved(2), Claimed(0), Ready(0))
    assert apply(attempt, Ready(0), START).attempt == attempt
    assert attempt.state is State.RESERVED


@pytest.mark.req("JOB-4")
@pytest.mark.parametrize(
    "event", [Ready(0), Started(0), Reported(0, Report(Outcome.FAILED))], ids=["ready", "started", "reported"]
)
def test_an_unclaimed_lease_says_nothing(event: Event) -> None:
    with pytest.raises(Refused):
        apply(reserved(1), event, START)


@pytest.mark.req("JOB-7")
def test_an_expired_lease_says_nothing_even_before_the_sweep() -> None:
    attempt = steps(reserved(1), Claimed(0), Ready(0))
    with pytest.raises(Refused):
        apply(attempt, Reported(0, Report(Outcome.SUCCEEDED)), START + LEASE_TTL)


@pytest.mark.req("JOB-3")
def test_success_beats_a_cancel_that_came_too_late() -> None:
    attempt = steps(reserved(1), Claimed(0), Ready(0), Started(0), CancelRequested())
    assert attempt.state is State.STOPPING
    assert steps(attempt, Reported(0, Report(Outcome.SUCCEEDED, exit_code=0))).state is State.SUCCEEDED


@pytest.mark.req("JOB-3")
def test_an_unclaimed_peer_is_released_when_another_is_lost() -> None:
    attempt = steps(reserved(2), Claimed(0))
    attempt = steps(attempt, NodeRemoved(0))
    assert attempt.state is State.FAILED and attempt.cause is not None and attempt.cause.code == "lease_lost"
    assert [rank.state for rank in attempt.ranks] == [RankState.LOST, RankState.RELEASED]


@pytest.mark.req("JOB-7")
def test_nobody_claimed_is_no_failure_of_the_job() -> None:
    attempt = apply(reserved(1), Expired(), START + CLAIM_DEADLINE).attempt
    assert attempt.cause is not None and attempt.cause.code == "not_claimed"


@pytest.mark.req("JOB-3")
@pytest.mark.parametrize(
    ("state", "cause", "told"),
    [
        ("running", None, None),
        ("stopping", "cancelled", "cancelled"),
        ("stopping", "ready_deadline", "ready_deadline"),
        ("stopping", "exit_code", "peer_failed"),
    ],
)
def test_what_a_rank_is_told(state: str, cause: str | None, told: str | None) -> None:
    assert stop_told(state, cause) == told
