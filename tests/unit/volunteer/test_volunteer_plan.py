"""Slices, windows and learning rates of a round, and the rate of what is sent."""

from __future__ import annotations

import math
import random
from itertools import chain, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mingora.errors import UsageProblem
from mingora_volunteer.pace import BLOCK, Pace, rate_of
from mingora_volunteer.plan import cosine, slice_bounds, window_starts


@pytest.mark.req("VOL-1")
@given(st.integers(0, 10**9), st.integers(1, 10**4))
@example(3, 10)
def test_slices_are_equal_apart_and_in_order(tokens: int, parts: int) -> None:
    n = tokens // parts
    bounds = [slice_bounds(tokens, part, parts) for part in range(min(parts, 50))]
    assert all(end - begin == n for begin, end in bounds)
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert slice_bounds(tokens, parts - 1, parts)[1] == parts * n <= tokens


@pytest.mark.req("VOL-1")
def test_the_sampling_is_the_names_and_the_rounds() -> None:
    starts = list(window_starts("ali", 3, 20, 4, 1000))
    chance = random.Random("ali-3")
    assert starts == [[chance.randrange(1000) for _ in range(4)] for _ in range(20)]
    assert starts == list(window_starts("ali", 3, 20, 4, 1000))
    assert starts != list(window_starts("ali", 4, 20, 4, 1000)) != list(window_starts("veli", 4, 20, 4, 1000))
    assert set(chain.from_iterable(window_starts("ali", 0, 100, 4, 3))) == {0, 1, 2}


@pytest.mark.req("VOL-1")
def test_the_rate_falls_along_half_a_cosine() -> None:
    rates = [cosine(2e-4, step, 20) for step in range(21)]
    assert rates[0] == 2e-4 and rates[10] == pytest.approx(1e-4) and rates[20] == pytest.approx(0, abs=1e-12)
    assert rates == sorted(rates, reverse=True)
    assert rates[5] == pytest.approx(2e-4 * (1 + math.sqrt(0.5)) / 2)
    assert cosine(0.5, 0, 1) == 0.5


@pytest.mark.req("VOL-1")
@given(st.integers(1024, 10**8), st.lists(st.integers(1, BLOCK), max_size=100))
def test_no_more_is_sent_than_the_rate_allows(rate: int, blocks: list[int]) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        assert seconds > 0
        now += seconds

    pace = Pace(rate, clock=lambda: now, sleep=sleep)
    for size in blocks:
        pace.sent(size)
    assert now == pytest.approx(sum(blocks) / rate)
    assert 1024 <= pace.block <= BLOCK


@pytest.mark.req("VOL-1")
def test_rates_are_read_as_people_write_them() -> None:
    assert [rate_of(text) for text in ("500K", "2M", "2MiB/s", "4096", "1g")] == [
        512000,
        2 << 20,
        2 << 20,
        4096,
        1 << 30,
    ]
    for text in ("0", "1023", "-1", "", "fast", "1.5M", "9" * 13, "5T"):
        with pytest.raises(UsageProblem):
            rate_of(text)


@pytest.mark.req("VOL-1")
def test_without_a_limit_nothing_waits() -> None:
    pace = Pace(None, clock=lambda: 0.0, sleep=lambda _seconds: pytest.fail("slept"))
    pace.sent(1 << 40)
