"""What each rule promises under attack, whatever the hostile send; and the tables of docs/attacks.md."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from coordinator_attacks import ALL_RULES, ATTACKS, BEGIN, DOCUMENT, END, OUTLIER_FACTOR, Scene, closed, figures, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.robust import hostile, trimmed

pytestmark = pytest.mark.req("COORD-7", "COORD-3")

COUNTS, SEEDS = st.integers(3, 16), st.integers(0, 2**32)
LENGTHS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e3, 1e20, 1e38])
ROUNDING = 1 + 1e-5


def sent(scene: Scene, count: int, length: float, seed: int) -> list[Vector]:
    """Hostile results of steps of about that length: an agreed one, one's own, or an honest one backwards."""
    numbers = np.random.default_rng(seed)
    size = scene.globe.size
    agreed = numbers.standard_normal(size) / np.sqrt(size)
    found = []
    for honest in scene.honest[:1] * count:
        own = numbers.standard_normal(size) / np.sqrt(size)
        step = [agreed, own, scene.globe.astype(np.float64) - honest][numbers.integers(3)]
        found.append((scene.globe + step * length).astype(np.float32))
    return found


def ends(scene: Scene) -> tuple[Vector, Vector]:
    return np.min(scene.honest, axis=0), np.max(scene.honest, axis=0)


def longest(scene: Scene) -> float:
    return max(float(np.linalg.norm(result - scene.globe.astype(np.float64))) for result in scene.honest)


def step(scene: Scene, adapter: npt.NDArray[np.floating]) -> float:
    return float(np.linalg.norm(adapter - scene.globe.astype(np.float64)))


@settings(max_examples=40)
@given(count=COUNTS, length=LENGTHS, seed=SEEDS)
def test_the_median_stays_among_the_honest_while_they_are_the_majority(count: int, length: float, seed: int) -> None:
    few = (count - 1) // 2
    scene = Scene.drawn(count - few, 20, seed)
    low, high = ends(scene)
    out = closed("median", scene, sent(scene, few, length, seed))
    assert ((low <= out) & (out <= high)).all()


@settings(max_examples=40)
@given(count=COUNTS, length=LENGTHS, seed=SEEDS)
def test_the_trimmed_mean_stays_among_the_honest_while_a_fifth_is_hostile(count: int, length: float, seed: int) -> None:
    few = trimmed(count)
    scene = Scene.drawn(count - few, 20, seed)
    low, high = ends(scene)
    out = closed("trimmed-mean", scene, sent(scene, few, length, seed))
    assert ((low <= out) & (out <= high)).all()


@pytest.mark.parametrize("rule", ["krum", "multi-krum"])
@settings(max_examples=40)
@given(count=COUNTS, length=LENGTHS, seed=SEEDS)
def test_krum_stays_near_the_honest(rule: str, count: int, length: float, seed: int) -> None:
    """Who is taken scores no worse than an honest one: a share of its neighbours is honest, so it is near them."""
    few = hostile(count)
    scene = Scene.drawn(count - few, 20, seed)
    out = closed(rule, scene, sent(scene, few, length, seed))
    values = np.array(scene.honest, np.float64)
    apart = np.sqrt(((values[:, None] - values) ** 2).sum(axis=2)).max()
    bound = (1 + np.sqrt((count - few - 2) / (count - 2 * few - 1))) * apart
    assert np.linalg.norm(out - scene.mean) <= bound * ROUNDING


@settings(max_examples=40)
@given(count=COUNTS, length=LENGTHS, seed=SEEDS)
def test_clipped_steps_are_no_longer_than_the_longest_honest_one(count: int, length: float, seed: int) -> None:
    few = (count - 1) // 2
    scene = Scene.drawn(count - few, 20, seed)
    out = closed("norm-clip", scene, sent(scene, few, length, seed))
    assert step(scene, out) <= longest(scene) * ROUNDING


@settings(max_examples=40)
@given(count=COUNTS, length=LENGTHS, seed=SEEDS)
def test_with_the_outlier_rule_the_means_step_is_bounded_too(count: int, length: float, seed: int) -> None:
    few = (count - 1) // 2
    scene = Scene.drawn(count - few, 20, seed)
    out = closed("mean", scene, sent(scene, few, length, seed), OUTLIER_FACTOR)
    assert step(scene, out) <= OUTLIER_FACTOR * longest(scene) * ROUNDING


def test_without_it_one_result_moves_the_mean_anywhere() -> None:
    scene = Scene.drawn(8)
    one = ATTACKS["× 1000"](scene.globe, scene.honest, 1)
    assert scene.distance(closed("mean", scene, one)) > 100
    assert scene.distance(closed("mean", scene, one, OUTLIER_FACTOR)) < 1e-5


@pytest.mark.parametrize("rule", ALL_RULES)
def test_results_that_are_not_finite_leave_no_trace(rule: str) -> None:
    scene = Scene.drawn(8)
    refused = ATTACKS["all NaN"](scene.globe, scene.honest, 3)
    assert closed(rule, scene, refused).tobytes() == closed(rule, scene, []).tobytes()


@pytest.mark.parametrize("factor", [OUTLIER_FACTOR, 0])
def test_the_tables_bounds(factor: float) -> None:
    """What the document says in words: under every attack each robust rule is nearer than two honest steps."""
    names = list(ATTACKS)
    for rule, row in figures(factor).items():
        robust = rule not in ("mean", "nesterov")
        for attack, distance in zip(names, row, strict=True):
            assert distance < (2 if robust or factor or attack != "× 1000" else 1000), (rule, attack)


def test_the_document_holds_the_tables_that_the_code_gives() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    written, made = text.partition(BEGIN)[2].partition(END)[0], tables()
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", made), "run: python tests/coordinator_attacks.py"
    for there, here in zip(number.findall(written), number.findall(made), strict=True):
        assert float(there) == pytest.approx(float(here), rel=0.01, abs=0.011)
