"""Calls that may take long, made in a thread that stays, so that the one who waits can still be interrupted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mingora.errors import MingoraError

T = TypeVar("T")
TICK_SECONDS = 0.2


class Caller:
    """One thread, one call at a time: a kept-alive connection belongs to a thread, so it has to be the same one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="caller", daemon=True).start()

    def call(self, function: Callable[[], T], check: Callable[[], object]) -> T:
        """The result of `function`; its `MingoraError` is raised here. An exception from `check` abandons the call."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((function, answers))
        while True:
            try:
                answer = answers.get(timeout=TICK_SECONDS)
            except queue.Empty:
                check()
                continue
            if isinstance(answer, MingoraError):
                raise answer
            result: T = answer
            return result

    def _run(self) -> None:
        while True:
            function, answers = self._calls.get()
            try:
                answers.put(function())
            except MingoraError as error:
                answers.put(error)
