"""The numbers of a round: which tokens it is about, which windows of them a step takes, and its learning rates.

Source: coordinator protocol v1, "İşçi ne yapar?", step 4.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


def slice_bounds(tokens: int, part: int, parts: int) -> tuple[int, int]:
    """Slice `part` of `parts` equal ones of n = tokens // parts; what is left over at the end is in none."""
    n = tokens // parts
    return part * n, (part + 1) * n


def window_starts(name: str, number: int, steps: int, batch: int, places: int) -> Iterator[list[int]]:
    """For each step of round `number` where its `batch` windows begin, of `places` possible ones.

    The seed `{isci}-{tur}` makes it the same whenever the round is trained again.
    """
    chance = random.Random(f"{name}-{number}")  # noqa: S311 - the protocol's sampling seed, no secret
    for _step in range(steps):
        yield [chance.randrange(places) for _row in range(batch)]


def cosine(rate: float, step: int, steps: int) -> float:
    """The learning rate of `step`, counted from 0: half a cosine from `rate` at the first to 0 after the last."""
    return rate * 0.5 * (1.0 + math.cos(math.pi * step / steps))
