"""Sums of adapters that don't depend on the order in which they are added, and forget what is taken out again.

A float64 is rounded to a grid by adding ``3 * 2**e``: the sum lies between ``2 * 2**e`` and ``4 * 2**e``, where
neighbours are ``2**(e - 51)`` apart, and its bits count in that unit. Adding and subtracting these bits as whole
numbers is exact. (The rounding is that of Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mingora_coordinator.domain.blocks import MOST, Block, Vector, over_blocks

Doubles = npt.NDArray[np.float64]
MeanOf = Callable[[Block, Doubles], None]
"""Writes the mean of a block's values, as float64."""

# 51 bits of a value on the grid and 12 of the count stay below the 63 of a signed whole number.
MAX_RESULTS = 2**12 - 1
_BITS = 51
# A grid reaches at least twice as far as the global adapter's largest value: training moves it by far less than that.
_ROOM = 1
# A tensor's largest value needs this many bits above the unit: then what is rounded off is below a float32's own half.
_PRECISION = 24
_MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class Grid:
    """Multiples of ``2**(exponent - 51)`` between plus and minus ``2**exponent``."""

    exponent: int

    def takes(self, largest: float) -> bool:
        """Whether a tensor whose largest value that is can be summed here without losing a float32's precision."""
        return largest == 0 or 2.0 ** (self.exponent - _BITS + _PRECISION) <= largest < 2.0**self.exponent


def grid_for(globe: Vector) -> Grid:
    """The grid for results of this global adapter; it depends on nothing else."""
    largest = max(float(globe.max(initial=0)), -float(globe.min(initial=0)))
    return Grid((math.frexp(largest)[1] if largest else 0) + _ROOM)


class ExactSum:
    """A running sum of up to :data:`MAX_RESULTS` results that fit its grid. Takes 8 bytes a value."""

    def __init__(self, size: int, grid: Grid) -> None:
        self.count = 0
        self._sums = np.zeros(size, "<i8")
        self._grid = grid

    def add(self, *results: Vector) -> None:
        """Add results that fit (:class:`~mingora_coordinator.domain.measure.Measure`); several at once are faster."""
        self._apply(results, np.add)
        self.count += len(results)

    def take_out(self, result: Vector) -> None:
        """Take out a result that was added: the sum is what it would be without it, to the bit."""
        self._apply([result], np.subtract)
        self.count -= 1

    def mean_of(self, block: Block, out: Doubles) -> None:
        """Write the mean of the block's values."""
        # One product for the unit and the count: its rounding is far below a float32's.
        _value(self._sums[block], self._grid, self.count, 1 / self.count, out)

    def _apply(self, results: Sequence[Vector], operation: np.ufunc) -> None:
        def work(blocks: Sequence[Block]) -> None:
            buffer = np.empty(MOST)
            for block in blocks:
                sums = self._sums[block]
                for result in results:
                    operation(sums, _bits(result[block], self._grid, buffer), out=sums)

        over_blocks(self._sums.size, MOST, work)


def wide_mean_of(results: Sequence[Vector]) -> MeanOf:
    """The mean of any finite results, of which some fit no one grid: six grids, each for what the one above leaves."""
    # From float32's largest exponent down to below its smallest subnormal, 2**-149.
    grids = [Grid(exponent) for exponent in range(128, -149, -_BITS)]

    def mean_of(block: Block, out: Doubles) -> None:
        size = block.stop - block.start
        sums = np.zeros((len(grids), size), "<i8")
        left, buffer = np.empty(size), np.empty(size)
        for result in results:
            left[:] = result[block]
            for grid, row in zip(grids, sums, strict=True):
                bits = _bits(left, grid, buffer)
                row += bits
                left -= buffer - _anchor(grid)
        out[:] = 0
        for grid, row in zip(grids, sums, strict=True):
            _value(row, grid, len(results), 1, left)
            out += left
        out /= len(results)

    return mean_of


def _anchor(grid: Grid) -> float:
    return math.ldexp(3.0, grid.exponent)


def _bits(values: npt.NDArray[np.floating], grid: Grid, buffer: Doubles) -> npt.NDArray[np.int64]:
    """The values' places on the grid, each with the anchor's own bits; a view of ``buffer``."""
    rounded = buffer[: values.size]
    rounded[:] = values  # in two steps: NumPy adds what it has to convert in small pieces
    rounded += _anchor(grid)
    return rounded.view("<i8")


def _value(sums: npt.NDArray[np.int64], grid: Grid, count: int, factor: float, out: Doubles) -> None:
    """What ``count`` places add up to, times ``factor``.

    Whole numbers wrap around, and come back when the anchors are taken off.
    """
    anchors = int(np.float64(_anchor(grid)).view("<i8")) * count % _MODULUS
    signed = anchors - _MODULUS if anchors >= _MODULUS // 2 else anchors
    np.multiply(sums - np.int64(signed), math.ldexp(factor, grid.exponent - _BITS), out=out)
