"""The reference outer step against NumPy in float64, and the outlier rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_coordinator.domain import outliers
from mingora_coordinator.domain.exact import ExactSum, grid_for
from mingora_coordinator.domain.outer import mean_step, nesterov_step


@pytest.mark.req("COORD-3")
@pytest.mark.parametrize(("rate", "decay"), [(1.0, 0.5), (0.7, 0.9), (1.0, 0.0)])
def test_twenty_rounds_are_those_of_the_protocols_formula(rate: float, decay: float) -> None:
    draw = np.random.default_rng(7)
    size = 70_000  # more than a block
    globe = (draw.standard_normal(size) / 50).astype("<f4")
    reference, buffer = globe.astype(np.float64), np.zeros(size)
    momentum = None
    for _ in range(20):
        results = [(globe + draw.standard_normal(size) * 1e-3).astype("<f4") for _ in range(5)]
        total = ExactSum(size, grid_for(globe))
        for result in results:
            total.add(result)
        made, momentum_made = np.empty(size, "<f4"), np.empty(size, "<f4")
        nesterov_step(globe, momentum, total.mean_of, rate, decay, made, momentum_made)
        # The results were trained from the float32 adapter: the reference sees the same steps.
        delta = globe.astype(np.float64) - np.mean(np.array(results, np.float64), axis=0)
        buffer = decay * buffer + delta
        reference = reference - rate * (delta + decay * buffer)
        globe, momentum = made, momentum_made
    assert abs(globe - reference).max() < 1e-7
    assert momentum is not None
    assert abs(momentum - buffer).max() < 1e-8


@pytest.mark.req("COORD-3")
def test_what_no_float32_holds_becomes_the_largest() -> None:
    globe = np.array([-3e38, 1.0], "<f4")
    made, momentum = np.empty(2, "<f4"), np.empty(2, "<f4")

    def mean_of(block: slice, out: np.ndarray) -> None:
        out[:] = np.array([3e38, 1.0])[block]

    nesterov_step(globe, None, mean_of, 1.0, 0.5, made, momentum)
    assert np.isfinite(made).all() and np.isfinite(momentum).all()
    assert made.tolist() == [float(np.finfo(np.float32).max), 1.0]


@pytest.mark.req("COORD-3")
def test_the_mean_step_is_the_mean() -> None:
    made = np.empty(3, "<f4")

    def mean_of(block: slice, out: np.ndarray) -> None:
        out[:] = np.array([1.0, -2.5, 1e-40])[block]

    mean_step(mean_of, made)
    assert made.tolist() == np.array([1.0, -2.5, 1e-40], "<f4").tolist()


@pytest.mark.req("COORD-3")
@given(st.lists(st.floats(0, 1e30), max_size=9), st.floats(0, 100))
def test_outliers_are_those_beyond_a_multiple_of_the_median(distances: list[float], factor: float) -> None:
    limit = outliers.limit(distances, factor)
    if len(distances) < 3 or factor == 0:
        assert limit == float("inf")
    else:
        assert limit == factor * float(np.median(distances))
    if factor >= 1 and distances:
        assert min(distances) <= limit  # somebody is always used
