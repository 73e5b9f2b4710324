"""What is asked of a result's values in one pass over them: are all finite, how far is it, does the sum take it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mingora_coordinator.domain.blocks import MOST, THREADS, Vector, over_shares
from mingora_coordinator.domain.exact import Grid
from mingora_coordinator.domain.header import Header

BYTES_A_VALUE = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Values ``start`` to ``stop`` of an adapter, all of tensor number ``tensor``."""

    tensor: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A finite result.

    Attributes:
        distance: Euclidean norm of result minus global adapter, in float64.
        fits: whether the exact sum's grid is fine and wide enough for it (:class:`Grid`).
    """

    distance: float
    fits: bool


class NotFinite(ValueError):
    """A value is NaN or infinite; the text is its tensor's name."""


def pieces_of(header: Header) -> list[Piece]:
    """An F32 adapter cut at its tensors' borders, and where a tensor is larger than a block."""
    pieces = []
    for number, tensor in enumerate(header.tensors):
        begin, end = tensor.begin // BYTES_A_VALUE, tensor.end // BYTES_A_VALUE
        pieces += [Piece(number, start, min(start + MOST, end)) for start in range(begin, end, MOST)]
    return pieces


def measure(header: Header, pieces: Sequence[Piece], globe: Vector, result: Vector, grid: Grid) -> Measure:
    """Measure ``result``; both vectors have the layout of ``header``, whose pieces are given.

    Raises:
        NotFinite: naming the first such tensor.
    """

    def work(share: Sequence[Piece]) -> tuple[list[tuple[int, float, float]], float]:
        difference, found, total = np.empty(MOST), [], 0.0
        for piece in share:
            values = result[piece.start : piece.stop]
            # The smallest and the largest: a NaN among the values is both.
            found.append((piece.tensor, float(values.min()), float(values.max())))
            part = difference[: values.size]
            with np.errstate(invalid="ignore"):  # a NaN's or an infinity's warning, which is told by name
                np.subtract(values, globe[piece.start : piece.stop], out=part, dtype=np.float64)
                # Not BLAS: how it shares a sum between threads differs between machines.
                total += float(np.einsum("i,i->", part, part))
        return found, total

    shares = over_shares([pieces[share::THREADS] for share in range(THREADS)], work)
    largest = [0.0] * len(header.tensors)
    bad: set[int] = set()
    for number, low, high in (entry for found, _total in shares for entry in found):
        if not (math.isfinite(low) and math.isfinite(high)):
            bad.add(number)
        largest[number] = max(largest[number], -low, high)
    if bad:
        raise NotFinite(header.tensors[min(bad)].name)
    return Measure(math.sqrt(sum(total for _found, total in shares)), all(grid.takes(value) for value in largest))
