"""The order statistics of every coordinate over stored results, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mingora_coordinator.domain.blocks import Block, Vector, block_length, over_blocks

# Up to here a sorting network is faster than NumPy's sort of one coordinate after the other, on any processor.
MOST_IN_A_NETWORK = 32

Comparator = tuple[int, int, bool, bool]


def mean_of_middle(results: Sequence[Vector], first: int, end: int, out: Vector) -> None:
    """Write, for each coordinate, the mean of the ``first``-th to the ``end - 1``-th smallest of its values.

    The sum is taken in float64 from the smallest up, so not a bit of it depends on the order of ``results``.
    A zero is always a positive one: which of two equal zeros is the smaller isn't defined.
    """
    count = len(results)
    length = block_length(count)
    comparators = _network(count, first, end) if count <= MOST_IN_A_NETWORK else None

    def work(blocks: Sequence[Block]) -> None:
        buffer, spare = np.empty((count, length), "<f4"), np.empty(length, "<f4")
        total = np.empty(length)
        for block in blocks:
            size = block.stop - block.start
            rows = buffer[:, :size]
            for row, result in zip(rows, results, strict=True):
                row[:] = result[block]
            if comparators is None:
                # Contiguous coordinates: NumPy sorts these many times faster than along a stride.
                coordinates = rows.T.copy()
                coordinates.sort(axis=1)
                ordered = list(coordinates.T)
            else:
                ordered = _sort(list(rows), spare[:size], comparators)
            total[:size] = 0
            for row in ordered[first:end]:
                total[:size] += row
            out[block] = total[:size] / (end - first)

    over_blocks(out.size, length, work)


def _sort(rows: list[Vector], spare: Vector, comparators: Sequence[Comparator]) -> list[Vector]:
    """Order the rows coordinate by coordinate, in place; the list gives them in their new order."""
    for low, high, needs_low, needs_high in comparators:
        if needs_low and needs_high:
            np.minimum(rows[low], rows[high], out=spare)
            np.maximum(rows[low], rows[high], out=rows[high])
            rows[low], spare = spare, rows[low]
        elif needs_low:
            np.minimum(rows[low], rows[high], out=rows[low])
        else:
            np.maximum(rows[low], rows[high], out=rows[high])
    return rows


def _network(count: int, first: int, end: int) -> list[Comparator]:
    """The comparators that put the ``first``-th to ``end - 1``-th smallest in place; each tells which halves it needs.

    Batcher's odd-even merge sort without what none of the wanted places depends on.
    """
    wanted, needed = set(range(first, end)), []
    for low, high in reversed(list(_batcher(count))):
        if low in wanted or high in wanted:
            needed.append((low, high, low in wanted, high in wanted))
            wanted |= {low, high}
    return needed[::-1]


def _batcher(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort of any count (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M)."""
    top = 1 << max(0, (count - 1).bit_length() - 1)
    merged = top
    while merged:
        far, offset, distance = top, 0, merged
        while True:
            for low in range(count - distance):
                if low & merged == offset:
                    yield low, low + distance
            if far == merged:
                break
            distance, far, offset = far - merged, far >> 1, merged
        merged >>= 1
