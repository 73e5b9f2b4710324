"""Runs tasks on a few threads; the first failure or an interrupt ends them all and is raised by the caller's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def run_all(tasks: Iterable[T], one: Callable[[T], None], threads: int) -> None:
    """Calls `one` for every task, in order of start, at most `threads` at a time.

    On a machine that gives out no more threads it makes do with those there are, down to the caller's own.
    """
    waiting = deque(tasks)
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            try:
                one(task)
            except BaseException as error:  # noqa: BLE001 - carried over to the thread that asked
                failures.append(error)

    pool = [threading.Thread(target=work, daemon=True) for _n in range(min(threads, len(waiting)))]
    try:
        started = _start(pool)
        if not started:
            work()
        for thread in started:
            while thread.is_alive():
                thread.join(0.5)  # an endless join can't be interrupted on Windows
    except BaseException as error:
        failures.append(error)
        raise
    if failures:
        raise failures[0]


def _start(threads: list[threading.Thread]) -> list[threading.Thread]:
    """Those of the threads that could be started."""
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:  # the machine's or the user's limit is reached
            return threads[:number]
    return threads
