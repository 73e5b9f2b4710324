"""When to beat, when to give up, and what a lease learns from answers; on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.errors import ApiError, LostAnswer, MingoraError
from mingora_worker.api import Beat, NodeApi, Stop
from mingora_worker.lease import Lease, Timer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Api(NodeApi):
    """Answers heartbeats from a list: a `Beat` or an error, each after `takes` seconds of the clock."""

    def __init__(self, clock: Clock, *answers: tuple[float, Beat | MingoraError]) -> None:
        self.clock, self.answers, self.calls = clock, list(answers), list[dict[str, Any]]()

    def heartbeat(
        self, lease_id: str, attempt: int, *, wait: float, started: bool, usage: dict[str, Any] | None
    ) -> Beat:
        self.calls.append({"wait": wait, "started": started, "usage": usage})
        takes, answer = self.answers.pop(0)
        self.clock.now += takes
        if isinstance(answer, MingoraError):
            raise answer
        return answer


def make(clock: Clock, *answers: tuple[float, Beat | MingoraError], ttl: float = 60.0) -> tuple[Lease, Api]:
    api = Api(clock, *answers)
    return Lease(api, "lease_1", 1, sent_at=clock.now, ttl=ttl, on_failure=lambda _e: None, clock=clock), api


GOING = Beat(60.0, start=True, stop=None)


@pytest.mark.req("JOB-7", "WORK-5")
def test_the_worker_gives_up_45_seconds_after_sending_what_was_acknowledged() -> None:
    clock = Clock()
    lease, _api = make(clock, (14.0, GOING))  # answered 14 s after it was sent
    lease.beat()
    clock.now = 1000.0 + 44.9
    assert not lease.lost
    clock.now = 1000.0 + 45.0
    assert lease.lost


@pytest.mark.req("JOB-7")
def test_a_failed_heartbeat_moves_nothing() -> None:
    clock = Clock()
    lease, api = make(clock, (1.0, LostAnswer("no answer")), (1.0, LostAnswer("no answer")))
    lease.beat()
    lease.beat()
    clock.now = 1045.0
    assert lease.lost
    assert [call["wait"] for call in api.calls] == [15.0, 0.0]  # after a failure an answer is wanted at once


@pytest.mark.req("JOB-4", "AUTH-4")
@pytest.mark.parametrize("error", [ApiError("lease_lost", 409, ""), ApiError("invalid_token", 401, "")])
def test_a_refused_heartbeat_loses_the_lease(error: ApiError) -> None:
    lease, _api = make(Clock(), (0.0, error))
    lease.beat()
    assert lease.lost


def test_a_closed_lease_is_not_lost_by_a_late_refusal() -> None:
    lease, _api = make(Clock(), (0.0, ApiError("lease_lost", 409, "")))
    lease.close()
    lease.beat()
    assert not lease.lost


def test_a_stop_is_kept_and_the_next_heartbeat_does_not_wait() -> None:
    stopping = Beat(60.0, start=True, stop=Stop("cancelled", 10.0))
    lease, api = make(Clock(), (3.0, stopping), (0.0, GOING))
    lease.beat()
    lease.beat()
    assert lease.stop == Stop("cancelled", 10.0)
    assert [call["wait"] for call in api.calls] == [15.0, 0.0]


def test_usage_and_the_start_are_told() -> None:
    lease, api = make(Clock(), (0.0, GOING))
    lease.set_started()
    lease.set_usage({"cpuSeconds": 1})
    lease.beat()
    assert api.calls == [{"wait": 15.0, "started": True, "usage": {"cpuSeconds": 1}}]


@pytest.mark.req("WORK-5")
def test_an_answer_that_waited_is_followed_at_once_and_an_immediate_one_after_the_interval() -> None:
    timer = Timer(0.0, 60.0)
    timer.answered(0.0, 15.0, 60.0)
    assert timer.until_next(15.0) == 0.0
    timer.answered(15.0, 15.1, 60.0)
    assert timer.until_next(15.1) == pytest.approx(14.9)


@pytest.mark.req("WORK-5")
def test_a_server_that_asks_for_time_gets_it_up_to_the_interval() -> None:
    timer = Timer(0.0, 60.0)
    timer.failed(0.0, 30.0, None)
    assert timer.until_next(0.0) == 5.0
    timer.failed(0.0, 0.1, 8.0)
    assert timer.until_next(0.0) == 8.0
    timer.failed(0.0, 0.1, 3600.0)
    assert timer.until_next(0.0) == 15.0


@pytest.mark.req("JOB-7", "WORK-5")
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=50))
def test_never_silent_for_longer_than_the_interval_and_over_after_45_seconds(steps: list[tuple[int, bool]]) -> None:
    timer, now, acked = Timer(0.0, 60.0), 0.0, 0.0
    for takes, works in steps:
        now += timer.until_next(now)
        sent_at = now
        now += takes
        if works:
            timer.answered(sent_at, now, 60.0)
            acked = sent_at
        else:
            timer.failed(now, 30.0, None)
        assert timer.until_next(now) <= 15.0
        assert timer.expired(now) == (now >= acked + 45.0)
