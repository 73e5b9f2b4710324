"""Group commit: everyone's item is carried out once, together where they wait, and a failure is told to all it hit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from mingora_blobstore.store.group import Group


def _threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def _wait_for(group: Group[int, None], count: int) -> None:
    while len(group._waiting) < count:
        pass


@pytest.mark.req("BLOB-1")
def test_those_that_come_meanwhile_are_carried_out_together_in_order() -> None:
    groups: list[list[int]] = []
    go = threading.Event()

    def carry_out(items: Sequence[int]) -> list[None]:
        groups.append(list(items))
        go.wait(10)
        return [None] * len(items)

    group: Group[int, None] = Group(carry_out, most=3)
    first = _threads(1, lambda _number: group.do(100))
    while not groups:
        pass
    rest = []
    for number in range(7):
        rest += _threads(1, lambda _number, number=number: group.do(number))  # type: ignore[misc]
        _wait_for(group, number + 1)
    go.set()
    for thread in first + rest:
        thread.join(10)
    assert groups == [[100], [0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.req("BLOB-1")
def test_a_failure_is_told_to_all_it_hit_and_to_nobody_else() -> None:
    entered, go = threading.Event(), threading.Event()

    def carry_out(items: Sequence[int]) -> list[None]:
        entered.set()
        go.wait(10)
        if 1 in items:
            raise OSError("no space")
        return [None] * len(items)

    group: Group[int, None] = Group(carry_out, most=2)
    told: dict[int, str] = {}

    def work(number: int) -> None:
        try:
            group.do(number)
            told[number] = "done"
        except OSError as error:
            told[number] = str(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    threads[0].start()
    entered.wait(10)
    for number, thread in enumerate(threads[1:]):
        thread.start()
        _wait_for(group, number + 1)
    go.set()
    for thread in threads:
        thread.join(10)
    assert told == {0: "done", 1: "no space", 2: "no space", 3: "done", 4: "done"}
    group.do(9)  # and the lead is free again


@pytest.mark.req("BLOB-1")
def test_many_at_once_are_each_carried_out_once_with_their_own_result() -> None:
    seen: list[int] = []

    def carry_out(items: Sequence[int]) -> list[int]:
        seen.extend(items)
        return [-item for item in items]

    group = Group(carry_out, most=4)
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(200):
            item = number * 1000 + step
            if group.do(item) != -item:
                wrong.append(item)

    for thread in _threads(8, work):
        thread.join(20)
    assert not wrong
    assert sorted(seen) == [number * 1000 + step for number in range(8) for step in range(200)]
    for number in range(8):
        assert [item for item in seen if item // 1000 == number] == sorted(i for i in seen if i // 1000 == number)
