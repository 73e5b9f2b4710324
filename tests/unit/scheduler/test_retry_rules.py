"""When a failed attempt is tried again."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from mingora_scheduler.domain.attempt import Attempt, Outcome, Rank, RankState, Reason, Report, State
from mingora_scheduler.domain.inputs import inputs_digest
from mingora_scheduler.domain.retry import Policy, retry_at

RANK = Rank(0, "lease_0", "node_0", "n", RankState.REPORTED, 0, report=Report(Outcome.FAILED, exit_code=75))
FAILED = Attempt(1, State.FAILED, (RANK,), 0, 0, ended_at=1, cause=Reason("exit_code", "m"))
LOST = replace(FAILED, ranks=(replace(RANK, report=None, state=RankState.LOST),), cause=Reason("lease_lost", "m"))


@pytest.mark.req("JOB-8")
@pytest.mark.parametrize(
    ("retry", "attempt", "tail", "again"),
    [
        (None, FAILED, b"", False),
        ({"max": 0}, FAILED, b"", False),
        ({"max": 1}, FAILED, b"", True),
        ({"max": 1}, LOST, b"", True),
        ({"max": 1, "onExitCodes": [75]}, FAILED, b"", True),
        ({"max": 1, "onExitCodes": [1]}, FAILED, b"", False),
        ({"max": 1, "onExitCodes": [75]}, LOST, b"", False),
        ({"max": 1, "onLogPatterns": ["köln"]}, LOST, "in köln am".encode(), True),
        ({"max": 1, "onLogPatterns": ["a.c"]}, FAILED, b"abc", False),
        ({"max": 1, "onExitCodes": [1], "onLogPatterns": ["abc"]}, FAILED, b"abc", True),
        ({"max": 5}, replace(FAILED, state=State.CANCELLED), b"", False),
        ({"max": 5}, replace(FAILED, state=State.SUCCEEDED), b"", False),
    ],
)
def test_the_policy_decides(retry: dict[str, object] | None, attempt: Attempt, tail: bytes, again: bool) -> None:
    at = retry_at(Policy.of({"retry": retry}), attempt, 0, [tail], 1000)
    assert (at is not None) == again


@pytest.mark.req("JOB-8", "WORK-7")
def test_what_the_worker_was_to_blame_for_is_tried_again_at_once() -> None:
    causes = ("worker_stopped", "engine_lost", "output_limit", "log_limit", "memory_exceeded")
    failed = [LOST, *(replace(FAILED, cause=Reason(code, "m")) for code in causes)]
    times = [retry_at(Policy(1), attempt, 0, [], 1000) for attempt in failed]
    assert times == [1000, 1000, 1000, 6000, 6000, 6000]


@pytest.mark.req("JOB-8")
def test_the_delay_doubles_up_to_five_minutes() -> None:
    delays = [retry_at(Policy(20), FAILED, failures, [], 0) for failures in range(21)]
    assert delays[:4] == [5_000, 10_000, 20_000, 40_000]
    assert delays[10:20] == [300_000] * 10 and delays[20] is None


@pytest.mark.req("JOB-7")
def test_a_reservation_that_nobody_claimed_never_counts() -> None:
    attempt = replace(LOST, cause=Reason("not_claimed", "m"))
    assert retry_at(Policy(0), attempt, 99, [], 1000) == 1000


@pytest.mark.req("JOB-3")
def test_the_inputs_digest_is_over_the_sorted_list() -> None:
    entries = [
        {"path": "b/ü", "objectId": "obj_1", "size": 2, "sha256": "b" * 64, "executable": True},
        {"path": "a", "objectId": "obj_2", "size": 1, "sha256": "a" * 64, "executable": False},
    ]
    assert inputs_digest(entries) == inputs_digest(reversed(entries))
    assert inputs_digest([{**entry, "objectId": "obj_9"} for entry in entries]) == inputs_digest(entries)
    text = '[["a",1,"' + "a" * 64 + '",false],["b/ü",2,"' + "b" * 64 + '",true]]'
    assert inputs_digest(entries) == hashlib.sha256(text.encode()).hexdigest()
