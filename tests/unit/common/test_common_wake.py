"""Waiting reads: bounded, never losing a wake-up between look and sleep, let go at the end."""

from __future__ import annotations

import threading

import pytest

from mingora_common.wake import Full, Waiters, wait_for


@pytest.mark.req("JOB-9")
def test_what_is_there_is_answered_without_a_place() -> None:
    assert wait_for(lambda: "now", Waiters(places=0), ["t"], 15) == "now"


@pytest.mark.req("JOB-9")
def test_without_a_wait_nothing_is_answered_at_once() -> None:
    assert wait_for(lambda: None, Waiters(places=0), ["t"], 0) is None


@pytest.mark.req("JOB-9")
def test_a_change_between_the_first_look_and_the_registration_is_seen() -> None:
    looks = iter([None, "changed"])
    assert wait_for(lambda: next(looks), Waiters(places=1), ["t"], 15) == "changed"


@pytest.mark.req("JOB-9")
def test_a_wake_up_ends_the_wait_and_other_topics_do_not() -> None:
    waiters, value, registered = Waiters(places=1), [None], threading.Event()
    looked = []

    def look() -> str | None:
        looked.append(1)
        if len(looked) == 2:
            registered.set()
        return value[0]

    def change() -> None:
        registered.wait(5)
        waiters.wake(["other"])
        value[0] = "done"  # type: ignore[call-overload]
        waiters.wake(["t"])

    thread = threading.Thread(target=change)
    thread.start()
    assert wait_for(look, waiters, ["t", "u"], 15) == "done"
    thread.join()
    assert waiters.waiting == 0


@pytest.mark.req("JOB-9")
def test_places_are_bounded_and_given_back() -> None:
    waiters = Waiters(places=1)
    with waiters.register(["t"]):
        with pytest.raises(Full), waiters.register(["t"]):
            pass
        with pytest.raises(Full):
            wait_for(lambda: None, waiters, ["t"], 1)
    with waiters.register(["t"]):
        assert waiters.waiting == 1


@pytest.mark.req("JOB-9")
def test_closing_lets_everybody_go() -> None:
    waiters = Waiters(places=8)
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(wait_for(lambda: None, waiters, ["t"], 15))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    while waiters.waiting < 8:
        pass
    waiters.close()
    for thread in threads:
        thread.join(5)
    assert answers == [None] * 8
    with pytest.raises(Full), waiters.register(["t"]):
        pass
