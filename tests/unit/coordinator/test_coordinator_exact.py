"""The sum that doesn't depend on order, and forgets what is taken out: by properties over all exponents."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.exact import MAX_RESULTS, ExactSum, Grid, grid_for, wide_mean_of
from mingora_coordinator.domain.outer import mean_step

ANY = st.floats(width=32, allow_nan=False, allow_infinity=False)


def vector(values: list[float]) -> Vector:
    return np.array(values, "<f4")


def mean(results: list[Vector], grid: Grid) -> Vector:
    total = ExactSum(results[0].size, grid)
    for result in results:
        total.add(result)
    out = np.empty(results[0].size, "<f4")
    mean_step(total.mean_of, out)
    return out


def fitting(grid: Grid) -> st.SearchStrategy[float]:
    return ANY.filter(lambda value: grid.takes(abs(value)))


@pytest.mark.req("COORD-3", "COORD-6")
@given(st.data(), st.integers(-120, 120), st.integers(2, 12))
def test_the_order_of_adding_changes_no_bit(data: st.DataObject, exponent: int, count: int) -> None:
    grid = Grid(exponent)
    bound = math.ldexp(1.0, min(exponent, 127))
    inside = st.floats(-bound, bound, width=32, exclude_min=True, exclude_max=True) if exponent > -140 else ANY
    results = [vector(data.draw(st.lists(inside, min_size=3, max_size=3))) for _ in range(count)]
    shuffled = results.copy()
    random.Random(exponent).shuffle(shuffled)
    assert mean(results, grid).tobytes() == mean(shuffled, grid).tobytes()


@pytest.mark.req("COORD-3", "COORD-6")
@given(st.data(), st.integers(1, 6))
def test_what_is_taken_out_leaves_no_trace(data: st.DataObject, count: int) -> None:
    grid = Grid(3)
    inside = st.floats(-7, 7, width=32)
    used = [vector(data.draw(st.lists(inside, min_size=4, max_size=4))) for _ in range(count)]
    other = vector(data.draw(st.lists(inside, min_size=4, max_size=4)))
    total = ExactSum(4, grid)
    total.add(other)
    for result in used:
        total.add(result)
    total.take_out(other)
    out = np.empty(4, "<f4")
    mean_step(total.mean_of, out)
    assert out.tobytes() == mean(used, grid).tobytes()


@pytest.mark.req("COORD-3")
@given(st.lists(st.lists(ANY, min_size=3, max_size=3), min_size=1, max_size=8), st.randoms())
def test_the_wide_mean_is_right_and_independent_of_order(rows: list[list[float]], shuffler: random.Random) -> None:
    results = [vector(row) for row in rows]
    first, second = np.empty(3, "<f4"), np.empty(3, "<f4")
    mean_step(wide_mean_of(results), first)
    shuffler.shuffle(results)
    mean_step(wide_mean_of(results), second)
    assert first.tobytes() == second.tobytes()
    for place in range(3):
        true = sum((Fraction(float(result[place])) for result in results), Fraction()) / len(results)
        # Within half a unit of float32 and what float64's last additions round.
        largest = np.nextafter(np.finfo(np.float32).max, np.float32(0))  # beyond it there is no next number
        unit = np.spacing(min(np.float32(abs(float(true))), largest))
        assert abs(Fraction(float(first[place])) - true) <= Fraction(float(unit)) * Fraction(51, 100)


@pytest.mark.req("COORD-3")
@settings(max_examples=50)
@given(st.integers(-20, 20), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_the_fast_mean_is_as_precise_as_float32(exponent: int, seed: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    globe = (draw.standard_normal(64) * 2.0**exponent).astype("<f4")
    grid = grid_for(globe)
    results = [(globe + draw.standard_normal(64) * 2.0 ** (exponent - 4)).astype("<f4") for _ in range(count)]
    assert all(grid.takes(float(abs(result).max())) for result in results)
    exact = np.mean(np.array(results, np.float64), axis=0)
    assert abs(mean(results, grid) - exact).max() <= float(abs(np.array(results)).max()) * 2.0**-24


@pytest.mark.req("COORD-3")
def test_a_mean_of_equals_is_what_they_are() -> None:
    globe = (np.random.default_rng(1).standard_normal(100_000) / 50).astype(np.float32)
    assert mean([globe] * 7, grid_for(globe)).tobytes() == globe.tobytes()


@pytest.mark.req("COORD-3")
def test_as_many_results_as_are_allowed_dont_overflow() -> None:
    grid = Grid(0)
    largest = np.nextafter(np.float32(1), np.float32(0))
    total = ExactSum(2, grid)
    for _ in range(MAX_RESULTS):
        total.add(vector([float(largest), -float(largest)]))
    out = np.empty(2)
    total.mean_of(slice(0, 2), out)
    assert out.tolist() == [float(largest), -float(largest)]


@pytest.mark.req("COORD-3")
def test_a_grid_takes_what_it_can_sum_and_leaves_the_rest() -> None:
    grid = grid_for(vector([0.5, -1.0]))
    assert grid == Grid(2)
    assert grid.takes(0) and grid.takes(3.9) and grid.takes(1e-6)
    assert not grid.takes(4.0) and not grid.takes(1e20) and not grid.takes(1e-12)
    assert grid_for(vector([0.0])) == Grid(1)
