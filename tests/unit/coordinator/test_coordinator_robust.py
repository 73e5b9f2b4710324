"""The robust rules against plain NumPy in float64, at any number of results, in any order, in little memory."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mingora_coordinator.domain.blocks import MOST, Vector
from mingora_coordinator.domain.order import MOST_IN_A_NETWORK, mean_of_middle
from mingora_coordinator.domain.robust import MOST_FOR_KRUM, RULES, hostile, krum, multi_krum, norm_clip, trimmed

pytestmark = pytest.mark.req("COORD-7")

Values = npt.NDArray[np.float64]

ULP = 2.0**-23
ADAPTER_BYTES = 10_092_544 * 4
BY_COORDINATE = ("median", "trimmed-mean")
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def matrices(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Vector]:
    """1 to 40 results of 1 to 12 values."""
    return arrays.arrays("<f4", st.tuples(st.integers(1, 40), st.integers(1, 12)), elements=elements)


def drawn(count: int, size: int, seed: int = 0) -> tuple[Vector, list[Vector]]:
    """A global adapter, and results at some distance from it."""
    numbers = np.random.default_rng(seed)
    globe = numbers.standard_normal(size, np.float32)
    return globe, [globe + numbers.standard_normal(size, np.float32) / np.float32(8) for _ in range(count)]


def applied(rule: str, globe: Vector, results: Sequence[Vector]) -> Vector:
    out = np.full_like(globe, np.nan)
    RULES[rule](globe, results, out)
    return out


def by_the_paper(rule: str, globe: Vector, results: Sequence[Vector]) -> Values:
    """All at once, in float64."""
    start, values = globe.astype(np.float64), np.array(results, np.float64)
    count = len(values)
    if rule == "median":
        return np.asarray(np.median(values, axis=0))
    if rule == "trimmed-mean":
        cut = trimmed(count)
        return np.asarray(np.sort(values, axis=0)[cut : count - cut].mean(axis=0))
    if rule == "norm-clip":
        norms = np.linalg.norm(values - start, axis=1)
        limit = np.median(norms)
        shares = [limit / norm if norm > limit else 1.0 for norm in norms]
        return np.asarray((start + (values - start) * np.array(shares)[:, None]).mean(axis=0))
    if count < 3:
        return np.asarray(values.mean(axis=0))
    wanted = 1 if rule == "krum" else count - hostile(count) - 2
    return np.asarray(values[np.argsort(scores(values), kind="stable")[:wanted]].mean(axis=0))


def scores(values: Values) -> Values:
    """Krum's score of each: the sum of the squared distances to the n - f - 2 nearest others."""
    near = len(values) - hostile(len(values)) - 2
    distances = ((values[:, None] - values) ** 2).sum(axis=2)
    return np.array([np.sort(np.delete(row, i))[:near].sum() for i, row in enumerate(distances)])


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40)
@given(count=st.integers(1, 40), size=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_each_rule_is_what_its_paper_says(rule: str, count: int, size: int, seed: int) -> None:
    globe, results = drawn(count, size, seed)
    wanted = by_the_paper(rule, globe, results)
    np.testing.assert_allclose(applied(rule, globe, results), wanted, rtol=ULP, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_over_several_blocks_and_from_files(rule: str, tmp_path: Path) -> None:
    """From the middle of a file, at an odd place, into a file: as the coordinator calls them."""
    globe, results = drawn(7, 3 * MOST + 5)
    wanted = by_the_paper(rule, globe, results)
    stored = []
    for number, result in enumerate(results):
        path = tmp_path / str(number)
        path.write_bytes(b"head." + result.tobytes())
        stored.append(np.memmap(path, "<f4", "r", offset=5, shape=globe.shape))
    out = np.memmap(tmp_path / "out", "<f4", "w+", shape=globe.shape)
    RULES[rule](globe, stored, out)
    np.testing.assert_allclose(out, wanted, rtol=ULP, atol=1e-9)


@settings(max_examples=40)
@given(matrix=matrices(FINITE))
def test_the_median_and_the_trimmed_mean_of_any_values(matrix: Vector) -> None:
    for rule in BY_COORDINATE:
        wanted = by_the_paper(rule, matrix[0], list(matrix))
        # What float64 loses between values of far apart exponents, and the rounding to float32.
        lost = np.abs(matrix).astype(np.float64).max(axis=0) * 1e-14 + np.abs(wanted) * ULP + 2.0**-149
        assert (np.abs(applied(rule, matrix[0], list(matrix)) - wanted) <= lost).all()


@settings(max_examples=40)
@given(matrix=matrices(st.one_of(FINITE, st.sampled_from([0.0, -0.0, 1.0]))), seed=st.integers(0, 2**32))
def test_no_bit_of_them_depends_on_the_order(matrix: Vector, seed: int) -> None:
    results, mixed = list(matrix), list(matrix)
    random.Random(seed).shuffle(mixed)
    for rule in BY_COORDINATE:
        assert applied(rule, matrix[0], results).tobytes() == applied(rule, matrix[0], mixed).tobytes()


@pytest.mark.parametrize("count", range(1, 13))
def test_every_order_of_zeros_and_ones_is_sorted(count: int) -> None:
    """Then a sorting network sorts everything (Knuth, The Art of Computer Programming 3, 5.3.4, theorem Z)."""
    results = np.array(list(itertools.product((0, 1), repeat=count)), "<f4").T.copy()
    for place, wanted in enumerate(np.sort(results, axis=0)):
        out = np.empty_like(wanted)
        mean_of_middle(list(results), place, place + 1, out)
        assert (out == wanted).all()


@pytest.mark.parametrize("count", [*range(13, MOST_IN_A_NETWORK + 3), 64, 65])
def test_every_place_of_many(count: int) -> None:
    results = np.random.default_rng(count).permuted(np.tile(np.arange(count, dtype="<f4")[:, None], 200), axis=0)
    for place in range(0, count, 3):
        out = np.empty(200, "<f4")
        mean_of_middle(list(results), place, place + 1, out)
        assert (out == place).all()


@pytest.mark.parametrize("rule", RULES)
def test_one_result_is_the_next_adapter(rule: str) -> None:
    globe, results = drawn(1, 50)
    np.testing.assert_allclose(applied(rule, globe, results), results[0], rtol=ULP)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "norm-clip"])
def test_two_results_give_their_mean(rule: str) -> None:
    globe, results = drawn(2, 50)
    np.testing.assert_allclose(applied(rule, globe, results), (results[0] + results[1]) / 2, rtol=2 * ULP, atol=1e-7)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 40])
def test_results_that_are_all_the_same(rule: str, count: int) -> None:
    globe, results = drawn(1, 50)
    np.testing.assert_allclose(applied(rule, globe, results * count), results[0], rtol=ULP)
    np.testing.assert_allclose(applied(rule, globe, [globe] * count), globe, rtol=ULP)


@settings(max_examples=40)
@given(matrix=matrices(st.floats(-4, 4, width=16)))
def test_krum_takes_one_result_as_it_is_and_none_lies_nearer(matrix: Vector) -> None:
    """Also among equal results, and results that lie equally near."""
    out = np.empty_like(matrix[0])
    krum(np.zeros_like(out), list(matrix), out)
    if len(matrix) > 2:
        found = [index for index, result in enumerate(matrix) if (result == out).all()]
        known = scores(matrix.astype(np.float64))
        assert known[found].min() <= known.min() * (1 + 1e-9) + 1e-9


def test_krum_tells_neighbours_apart_that_are_near_each_other_and_far_from_the_adapter() -> None:
    """And beside results whose squares no float32 holds."""
    numbers = np.random.default_rng(0)
    globe = numbers.standard_normal(500, np.float32)
    far = globe + np.float32(1000)
    honest = [far + numbers.integers(-9, 9, 500).astype(np.float32) / np.float32(1024) for _ in range(5)]
    giants = [np.full(500, 3e38, "<f4"), np.full(500, -3e38, "<f4")]
    wanted = honest[int(np.argmin(scores(np.array([*honest, *giants], np.float64))))]
    assert (applied("krum", globe, [*giants, *honest]) == wanted).all()


def test_krum_and_its_like_count_as_the_papers_do() -> None:
    assert [hostile(count) for count in (1, 2, 3, 4, 5, 7, 8, 32)] == [0, 0, 0, 0, 1, 2, 2, 14]
    globe, results = drawn(8, 20)
    values = np.array(results, np.float64)
    best = np.argsort(scores(values))[:4]  # 8 - 2 - 2
    out = np.empty_like(globe)
    multi_krum(globe, results, out)
    np.testing.assert_allclose(out, values[best].mean(axis=0), rtol=ULP, atol=1e-9)


def test_a_fifth_is_trimmed_at_each_end_rounded_up_and_at_least_one_from_three_on() -> None:
    assert [trimmed(count) for count in range(1, 12)] == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3]
    globe = np.zeros(1, "<f4")
    results = [np.array([value], "<f4") for value in (1e30, 1, 2, 6, -1e30)]
    assert applied("trimmed-mean", globe, results) == 3


def test_clipping_keeps_a_long_steps_direction_and_leaves_the_others() -> None:
    globe = np.array([1, 1], "<f4")
    steps = np.array([[3, 4], [0, -5], [-5, 0], [3e6, 4e6], [0, 1]], "<f4")
    out = np.empty_like(globe)
    norm_clip(globe, list(globe + steps), out)
    wanted = globe + np.mean([[3, 4], [0, -5], [-5, 0], [3, 4], [0, 1]], axis=0)
    np.testing.assert_allclose(out, wanted, rtol=ULP)


@pytest.mark.parametrize("rule", RULES)
def test_extra_memory_is_bounded_whatever_the_number_of_results(rule: str) -> None:
    """Below three adapters of the real size. A hundred of these results are more than that together."""
    count, size = (MOST_FOR_KRUM, 2_500) if "krum" in rule else (100, 320_000)
    globe, result = np.zeros(size, "<f4"), np.ones(size, "<f4")
    out = np.empty_like(globe)
    tracemalloc.start()
    try:
        RULES[rule](globe, [result] * count, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * ADAPTER_BYTES
