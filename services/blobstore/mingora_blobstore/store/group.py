"""Group commit: what threads ask for at the same moment is carried out in one go, with one wait for the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Group(Generic[T, R]):
    """Hands items to ``carry_out``, at most ``most`` at a time, in the order in which they came; it gives the results.

    The first thread that comes carries out its own item. Those that come meanwhile wait, and the first of them then
    carries out all of theirs. So a lone item never waits for others.
    """

    def __init__(self, carry_out: Callable[[Sequence[T]], Sequence[R]], most: int) -> None:
        self._carry_out = carry_out
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[_Entry[T, R]] = deque()
        self._led = False

    def do(self, item: T) -> R:
        """The result of carrying out ``item``; raises what that raised, which then holds for all of the group."""
        entry: _Entry[T, R] = _Entry(item)
        with self._lock:
            self._waiting.append(entry)
            leads, self._led = not self._led, True
        if not leads:
            entry.turn.wait()
        if not entry.done:
            self._lead()
        if entry.error is not None:
            raise entry.error
        return entry.result

    def _lead(self) -> None:
        """Carry out what waits, this thread's own item first, and pass the lead on."""
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        try:
            results = self._carry_out([entry.item for entry in group])
            for entry, result in zip(group, results, strict=True):
                entry.result = result
        except BaseException as error:  # noqa: BLE001 - each of the group raises it in its own thread
            for entry in group:
                entry.error = error
        for entry in group:
            entry.done = True
        with self._lock:
            heir = self._waiting[0] if self._waiting else None
            self._led = heir is not None
        for entry in group:
            entry.turn.set()
        if heir is not None:
            heir.turn.set()


class _Entry(Generic[T, R]):
    result: R

    def __init__(self, item: T) -> None:
        self.item = item
        self.turn = threading.Event()
        self.done = False
        self.error: BaseException | None = None
