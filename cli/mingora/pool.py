"""Runs tasks on a few threads; the first failure or an interrupt ends them all and is raised by the caller's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def run_all(tasks: Iterable[T], one: Callable[[T], None], threads: int) -> None:
    """Calls `one` for every task, in order of start, at most `threads` at a time."""
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
        for thread in pool:
            thread.start()
        for thread in pool:
            while thread.is_alive():
                thread.join(0.5)  # an endless join can't be interrupted on Windows
    except BaseException as error:
        failures.append(error)
        raise
    if failures:
        raise failures[0]
