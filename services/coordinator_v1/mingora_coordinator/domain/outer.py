"""From the mean of the results to the next global adapter: as it is, or by the protocol's reference outer step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mingora_coordinator.domain.blocks import MOST, Block, Vector, over_blocks
from mingora_coordinator.domain.exact import Doubles, MeanOf

_LARGEST = float(np.finfo(np.float32).max)


def mean_step(mean_of: MeanOf, out: Vector) -> None:
    """W = mean."""

    def work(blocks: Sequence[Block]) -> None:
        mean = np.empty(MOST)
        for block in blocks:
            part = mean[: block.stop - block.start]
            mean_of(block, part)
            out[block] = part  # no mean of float32 values is beyond their range

    over_blocks(out.size, MOST, work)


def nesterov_step(
    globe: Vector,
    momentum: Vector | None,
    mean_of: MeanOf,
    rate: float,
    decay: float,
    out: Vector,
    momentum_out: Vector,
) -> None:
    """The protocol's reference outer step, in float64, kept as float32.

    delta = W - mean; momentum = decay * momentum + delta; W = W - rate * (delta + decay * momentum).

    Args:
        momentum: of the round before; None is zeros.
    """

    def work(blocks: Sequence[Block]) -> None:
        first, second, third = np.empty(MOST), np.empty(MOST), np.empty(MOST)
        for block in blocks:
            size = block.stop - block.start
            delta, pushed, step = first[:size], second[:size], third[:size]
            mean_of(block, delta)
            np.subtract(globe[block], delta, out=delta, dtype=np.float64)
            if momentum is None:
                pushed[:] = delta
            else:
                np.multiply(momentum[block], decay, out=pushed, dtype=np.float64)
                pushed += delta
            _store(pushed, momentum_out[block])
            np.multiply(pushed, decay, out=step)
            step += delta
            step *= -rate
            step += globe[block]
            _store(step, out[block])

    over_blocks(out.size, MOST, work)


def _store(values: Doubles, out: Vector) -> None:
    """As float32; what is beyond its range, which results near its end can lead to, becomes the largest there is."""
    np.clip(values, -_LARGEST, _LARGEST, out=values)
    out[:] = values
