"""Calls that may take long, made in a thread that stays, so that the one who waits can still be interrupted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
TICK_SECONDS = 0.2


class Caller:
    """One thread, one call at a time: a kept-alive connection belongs to a thread, so it has to be the same one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="caller", daemon=True).start()

    def call(self, function: Callable[[], T], check: Callable[[], object]) -> T:
        """The result of `function`, or its exception. An exception from `check` abandons the call."""
        answers: queue.SimpleQueue[tuple[T, BaseException | None]] = queue.SimpleQueue()
        self._calls.put((function, answers))
        while True:
            try:
                answer = answers.get(timeout=TICK_SECONDS)
            except queue.Empty:
                check()
                continue
            result, error = answer
            if error is not None:
                raise error
            return result

    def _run(self) -> None:
        while True:
            function, answers = self._calls.get()
            try:
                answers.put((function(), None))
            except BaseException as error:  # noqa: BLE001 - carried over to the thread that asked
                answers.put((None, error))
