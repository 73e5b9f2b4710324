"""The running sum of the open round's results, so that closing it takes as long for a thousand as for eight.

A result that is far from the others so far is held apart. Should it be used after all it is added at the close, and one
that turns out to be an outlier only then is taken out: either way the sum is that of exactly the results that are used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from mingora_coordinator.domain import outliers
from mingora_coordinator.domain.blocks import Block, Vector
from mingora_coordinator.domain.exact import Doubles, ExactSum, Grid, MeanOf, wide_mean_of
from mingora_coordinator.domain.rounds import Accepted

Open = Callable[[Accepted], Vector]


class RunningSum:
    """One round's sum.

    Args:
        size: values of an adapter.
        grid: of the round's global adapter.
        open_result: a recorded result's numbers.
        factor: of the outlier rule.
    """

    def __init__(self, size: int, grid: Grid, open_result: Open, factor: float) -> None:
        self._sum = ExactSum(size, grid)
        self._open = open_result
        self._factor = factor
        self._lock = threading.Lock()
        self._added: dict[str, Accepted] = {}
        self._distances: list[float] = []
        self._done = False

    def add(self, result: Accepted) -> None:
        """Add a result, unless it is likely not to be used, doesn't fit, or the round is already made up."""
        with self._lock:
            self._distances.append(result.distance)
            if result.fits and not self._done and result.distance <= outliers.limit(self._distances, self._factor):
                self._add(result)

    def mean_of(self, used: Sequence[Accepted]) -> MeanOf:
        """The mean of these results, whichever were added before. Nothing is added afterwards."""
        if len(used) == 1:
            return _single(self._open(used[0]))
        if not all(result.fits for result in used):
            return wide_mean_of([self._open(result) for result in used])
        with self._lock:
            self._done = True
            wanted = {result.file for result in used}
            for result in [added for name, added in self._added.items() if name not in wanted]:
                self._sum.take_out(self._open(result))
                del self._added[result.file]
            missing = [result for result in used if result.file not in self._added]
            self._sum.add(*map(self._open, missing))
            self._added |= {result.file: result for result in missing}
        return self._sum.mean_of

    def _add(self, result: Accepted) -> None:
        self._sum.add(self._open(result))
        self._added[result.file] = result


def _single(result: Vector) -> MeanOf:
    def mean_of(block: Block, out: Doubles) -> None:
        np.copyto(out, result[block])

    return mean_of
