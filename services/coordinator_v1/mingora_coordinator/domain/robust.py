"""The robust aggregation rules: a new global adapter from stored results of which some may be hostile.

Each takes the published adapter W and the results S_i in their canonical order and writes the new adapter. They read
blocks, so the memory they take doesn't grow with the results beyond a few MiB. What each withstands, in figures, is in
docs/attacks.md. With one or two results nobody can tell which is the hostile one: each rule is then the mean, but
norm_clip with two, which shortens the longer step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mingora_coordinator.domain.blocks import Block, Vector, block_length, over_blocks
from mingora_coordinator.domain.order import mean_of_middle

Rule = Callable[[Vector, Sequence[Vector], Vector], None]
"""``rule(globe, results, out)``: vectors of one length, at least one result; ``out`` may be a memory map."""

Matrix = npt.NDArray[np.float64]

# Fewer can't show which of them is the odd one out.
LEAST_FOR_A_MAJORITY = 3
# Krum compares each result with each other. With more, neither its hours nor its matrices are in proportion.
MOST_FOR_KRUM = 1024


def coordinate_median(_globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """The median of each coordinate; of an even number, the mean of the two in the middle (Yin et al. 2018)."""
    count = len(results)
    mean_of_middle(results, (count - 1) // 2, count // 2 + 1, out)


def trimmed_mean(_globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """The mean of each coordinate without its smallest fifth and its largest fifth (Yin et al. 2018)."""
    cut = trimmed(len(results))
    mean_of_middle(results, cut, len(results) - cut, out)


def trimmed(count: int) -> int:
    """How many values are left out at each end: a fifth, rounded up, so that as many hostile results are withstood.

    The share is a choice: Yin et al. 2018 ask for at least the share of the hostile, and below a half.
    """
    return -(-count // 5) if count >= LEAST_FOR_A_MAJORITY else 0


def krum(_globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """The one result that lies nearest to its neighbours, as it is (Blanchard et al. 2017)."""
    _mean(_best(results, 1), out)


def multi_krum(_globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """The mean of the n - f - 2 results that lie nearest to their neighbours.

    Blanchard et al. 2017; that many, because the proof of resilience holds up to there (El Mhamdi et al. 2018).
    """
    _mean(_best(results, _neighbours(len(results))), out)


def norm_clip(globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """W and the mean of the steps S_i - W, the longer ones cut down to the median length (Sun et al. 2019).

    Sun et al. cut to a constant; the median needs no setting and follows the steps as they shorten.
    """
    norms = np.sqrt(_squared_norms(globe, results))
    limit = np.median(norms)
    count = len(results)
    scales = np.divide(limit, norms, out=np.ones(count), where=norms > limit)
    length = block_length(2 * count)

    def work(blocks: Sequence[Block]) -> None:
        buffer = np.empty((count, length))
        for block in blocks:
            origin, steps = _steps(globe, results, block, buffer)
            # Not BLAS: its sums differ between machines.
            out[block] = origin + np.einsum("i,ij->j", scales, steps) / count

    over_blocks(out.size, length, work)


RULES: Mapping[str, Rule] = {
    "median": coordinate_median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
    "multi-krum": multi_krum,
    "norm-clip": norm_clip,
}


def hostile(count: int) -> int:
    """How many hostile results Krum withstands at most: it needs n >= 2 f + 3 (Blanchard et al. 2017)."""
    return max(0, (count - 3) // 2)


def _neighbours(count: int) -> int:
    return max(1, count - hostile(count) - 2)


def _best(results: Sequence[Vector], wanted: int) -> list[Vector]:
    """The ``wanted`` results of the lowest score: the sum of the squared distances to the n - f - 2 nearest others.

    All of them where there are fewer than three. Of equal scores the first in order wins.
    """
    count = len(results)
    if count < LEAST_FOR_A_MAJORITY:
        return list(results)
    distances = _squared_distances(results)
    np.fill_diagonal(distances, np.inf)
    distances.sort(axis=1)
    scores = distances[:, : _neighbours(count)].sum(axis=1)
    return [results[index] for index in np.sort(np.argsort(scores, kind="stable")[:wanted])]


def _squared_distances(results: Sequence[Vector]) -> Matrix:
    """The squared distance of each result to each other, from their inner products: one pass over the results.

    In float64: in float32 the difference of large products would swallow the distance of neighbours, and a value of
    1e20 would overflow. What float64 swallows are distances below 1e-7 of an adapter's length, where float32 ends.
    """
    count = len(results)
    length = block_length(2 * count)

    def work(blocks: Sequence[Block]) -> Matrix:
        products, buffer = np.zeros((count, count)), np.empty((count, length))
        for block in blocks:
            rows = buffer[:, : block.stop - block.start]
            for row, result in zip(rows, results, strict=True):
                row[:] = result[block]
            # BLAS, whose last bits differ between machines: they choose between results that lie equally near.
            products += rows @ rows.T
        return products

    products = sum(over_blocks(results[0].size, length, work), np.zeros((count, count)))
    norms = products.diagonal()
    return np.maximum(norms[:, None] + norms - 2 * products, 0)


def _squared_norms(globe: Vector, results: Sequence[Vector]) -> npt.NDArray[np.float64]:
    count = len(results)
    length = block_length(2 * count)

    def work(blocks: Sequence[Block]) -> npt.NDArray[np.float64]:
        norms, buffer = np.zeros(count), np.empty((count, length))
        for block in blocks:
            _, steps = _steps(globe, results, block, buffer)
            norms += np.einsum("ij,ij->i", steps, steps)
        return norms

    return sum(over_blocks(globe.size, length, work), np.zeros(count))


def _steps(globe: Vector, results: Sequence[Vector], block: Block, buffer: Matrix) -> tuple[Matrix, Matrix]:
    """A block of W, and of the steps S_i - W in the rows of ``buffer``."""
    origin = globe[block].astype(np.float64)
    steps = buffer[:, : origin.size]
    for step, result in zip(steps, results, strict=True):
        step[:] = result[block]
        step -= origin
    return origin, steps


def _mean(results: Sequence[Vector], out: Vector) -> None:
    if len(results) == 1:
        out[:] = results[0]
        return

    def work(blocks: Sequence[Block]) -> None:
        for block in blocks:
            total = results[0][block].astype(np.float64)
            for result in results[1:]:
                total += result[block]
            out[block] = total / len(results)

    over_blocks(out.size, block_length(1), work)
