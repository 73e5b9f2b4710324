"""The threads of a transfer: all tasks are done, however many threads the machine gives."""

from __future__ import annotations

import threading

import pytest

from mingora.pool import run_all


@pytest.mark.req("CLI-9")
@pytest.mark.parametrize("given", [0, 1, 2, 4])
def test_a_machine_short_of_threads_does_all_the_same(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal started
        if started == given:
            raise RuntimeError("can't start new thread")
        started += 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    done: list[int] = []
    run_all(range(20), done.append, 4)
    assert sorted(done) == list(range(20))


@pytest.mark.req("CLI-9")
def test_the_first_failure_is_raised_and_ends_the_rest() -> None:
    done: list[int] = []

    def one(number: int) -> None:
        if number == 3:
            raise ValueError("three")
        done.append(number)

    with pytest.raises(ValueError, match="three"):
        run_all(range(1000), one, 1)
    assert done == [0, 1, 2]
