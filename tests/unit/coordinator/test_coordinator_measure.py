"""One pass over a result: finite, how far, and whether the sum takes it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mingora_coordinator.domain.blocks import MOST
from mingora_coordinator.domain.exact import grid_for
from mingora_coordinator.domain.header import Header, Tensor
from mingora_coordinator.domain.measure import NotFinite, measure, pieces_of

SIZES = (3, MOST + 5, 0, 1, 2 * MOST)


def header() -> Header:
    tensors, begin = [], 0
    for number, size in enumerate(SIZES):
        tensors.append(Tensor(f"t{number}", "F32", (size,), begin, begin + 4 * size))
        begin += 4 * size
    return Header(tuple(tensors), 8)


HEADER = header()
PIECES = pieces_of(HEADER)
GLOBE = (np.random.default_rng(3).standard_normal(sum(SIZES)) / 10).astype("<f4")


@pytest.mark.req("COORD-1")
def test_pieces_cover_every_value_once_and_stay_in_their_tensor() -> None:
    covered = [place for piece in PIECES for place in range(piece.start, piece.stop)]
    assert covered == list(range(sum(SIZES)))
    for piece in PIECES:
        tensor = HEADER.tensors[piece.tensor]
        assert tensor.begin <= 4 * piece.start < 4 * piece.stop <= tensor.end


@pytest.mark.req("COORD-1")
def test_the_distance_is_the_norm_of_the_difference() -> None:
    result = GLOBE + np.float32(0.25)
    found = measure(HEADER, PIECES, GLOBE, result, grid_for(GLOBE))
    assert found.distance == pytest.approx(np.linalg.norm(result.astype(float) - GLOBE.astype(float)), rel=1e-12)
    assert found.fits
    assert measure(HEADER, PIECES, GLOBE, GLOBE, grid_for(GLOBE)).distance == 0


@pytest.mark.req("COORD-1")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2, 3, MOST + 7, MOST + 8, sum(SIZES) - 1])
def test_one_value_that_isnt_finite_names_its_tensor(value: float, place: int) -> None:
    result = GLOBE.copy()
    result[place] = value
    owner = next(tensor.name for tensor in HEADER.tensors if tensor.begin <= 4 * place < tensor.end)
    with pytest.raises(NotFinite, match=f"^{owner}$"):
        measure(HEADER, PIECES, GLOBE, result, grid_for(GLOBE))


@pytest.mark.req("COORD-1", "COORD-3")
def test_the_largest_and_the_smallest_of_float32_are_finite_and_dont_fit() -> None:
    for value in (3.4028234e38, 1e-30):
        result = GLOBE.copy()
        result[0:3] = value
        found = measure(HEADER, PIECES, GLOBE, result, grid_for(GLOBE))
        assert math.isfinite(found.distance) and not found.fits
