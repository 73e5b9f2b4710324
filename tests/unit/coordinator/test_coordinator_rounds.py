"""A round's life as a state machine, and the slices of its workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mingora_coordinator.domain.rounds import Accepted, Closing, Refusal, Round
from mingora_coordinator.domain.settings import Settings
from mingora_coordinator.domain.shards import MAX_REMEMBERED, Shards

WORKERS = st.sampled_from(["ali", "veli", "ayşe", "fatma", "can"])
SETTINGS = Settings(rounds=2, min_results=3, timeout=60)


def accepted(worker: str) -> Accepted:
    return Accepted(worker, f"{worker}.safetensors", "0" * 64, 1, 8, 1.0, True, 0.1)


class OneRound(RuleBasedStateMachine):
    """Workers send at any time, some of it fails on the disk; the clock goes on; somebody closes what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.round = Round(1, opened=0.0)
        self.now = 0.0
        self.on_the_way: set[str] = set()
        self.recorded: set[str] = set()

    @rule(worker=WORKERS, number=st.sampled_from([0, 1, 2]))
    def send(self, worker: str, number: int) -> None:
        refusal = self.round.refusal(worker, number, SETTINGS, asked=True)
        there = self.on_the_way | self.recorded
        if number != 1:
            assert refusal is Refusal.OTHER_ROUND
        elif worker in there:
            assert refusal is Refusal.REPEATED
        elif self.round.closing or len(there) >= SETTINGS.min_results:
            assert refusal is Refusal.FULL
        else:
            assert refusal is None
            self.round.reserve(worker)
            self.on_the_way.add(worker)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), fails=st.booleans())
    def settle(self, data: st.DataObject, fails: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(self.on_the_way)))
        self.on_the_way.discard(worker)
        if fails:
            self.round.release(worker)
        else:
            self.round.accept(accepted(worker))
            self.recorded.add(worker)

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def close_when_due(self) -> None:
        due = self.round.due(self.now, SETTINGS)
        if self.round.closing or not self.recorded:
            assert due is None
        elif len(self.recorded) == SETTINGS.min_results:
            assert due is Closing.COUNT
        else:
            assert due is (Closing.TIME if self.now >= 60 else None)
        if due is not None:
            self.round.close()

    @invariant()
    def never_more_than_needed_and_each_once(self) -> None:
        assert set(self.round.accepted) == self.recorded
        assert len(self.recorded | self.on_the_way) <= SETTINGS.min_results
        assert self.round.settled == (not self.on_the_way)
        for worker in self.on_the_way | self.recorded:
            assert self.round.has_result_of(worker)


TestOneRound = pytest.mark.req("COORD-2", "COORD-3")(OneRound.TestCase)
TestOneRound.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.req("COORD-1", "COORD-2")
def test_refusals_come_in_order() -> None:
    over = Round(2, opened=0.0)
    assert over.refusal("ali", 2, SETTINGS, asked=True) is Refusal.OVER
    again = Round(1, opened=0.0, must_ask=True)
    assert again.refusal("ali", 1, SETTINGS, asked=False) is Refusal.NOT_ASKED
    assert again.refusal("ali", 1, SETTINGS, asked=True) is None
    assert again.refusal("ali", 0, SETTINGS, asked=False) is Refusal.OTHER_ROUND


@pytest.mark.req("COORD-3")
def test_no_time_limit_means_waiting_for_all() -> None:
    patient = Settings(rounds=2, min_results=3, timeout=0)
    at = Round(0, opened=0.0)
    at.reserve("ali")
    at.accept(accepted("ali"))
    assert at.due(1e12, patient) is None
    assert at.due(1e12, SETTINGS) is Closing.TIME


@pytest.mark.req("COORD-2")
@given(st.integers(1, 7), st.lists(st.text(max_size=5), max_size=40))
def test_slices_are_kept_and_shared_out_evenly(count: int, workers: list[str]) -> None:
    shards = Shards(count)
    first = {worker: shards.of(worker)[0] for worker in workers}
    assert all(shards.of(worker) == (shard, False) for worker, shard in first.items())
    taken = [list(first.values()).count(shard) for shard in range(count)]
    assert max(taken) - min(taken) <= 1
    again = Shards(count)
    for worker, shard in first.items():
        again.restore(worker, shard)
    assert {worker: again.of(worker)[0] for worker in workers} == first


@pytest.mark.req("COORD-2")
def test_made_up_nicknames_dont_fill_the_memory() -> None:
    shards = Shards(3)
    for number in range(MAX_REMEMBERED + 50):
        shards.of(f"w{number}")
    assert len(shards) == MAX_REMEMBERED
    late = shards.of("late")
    assert late == shards.of("late") and 0 <= late[0] < 3 and late[1] is False


@pytest.mark.req("COORD-2")
def test_a_slice_from_before_the_count_was_changed_is_passed_over() -> None:
    shards = Shards(2)
    shards.restore("ali", 5)
    assert "ali" not in shards
    assert shards.of("ali") == (0, True)
