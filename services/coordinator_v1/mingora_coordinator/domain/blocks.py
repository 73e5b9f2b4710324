"""Working through adapters in blocks, so that any number of stored results takes the same little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""An adapter's values: flat, little-endian float32, in the order of the global adapter's data; often a memory map."""

Block = slice
S = TypeVar("S")
T = TypeVar("T")

# A constant, not the machine's cores: sums are taken thread by thread, and a digest must not depend on the machine.
THREADS = 2
# Values of all rows of a block together, 8 MiB, and of one row: with shorter ones threads wait for each other's
# interpreter more than they compute.
VALUES = 1 << 21
LEAST, MOST = 1 << 10, 1 << 16
# Rows whose distance is a power of two share the same few lines of the cache.
APART = 16


def block_length(rows: int) -> int:
    """How many coordinates to take at a time of ``rows`` adapters."""
    return max(LEAST, min(MOST, VALUES // rows)) + APART


def over_blocks(size: int, length: int, work: Callable[[Sequence[Block]], T]) -> list[T]:
    """Share the blocks of ``size`` values between threads; returns what ``work`` gave for each share, in order.

    Which blocks make up a share depends on ``size`` and ``length`` alone.
    """
    blocks = [slice(start, min(start + length, size)) for start in range(0, size, length)]
    return over_shares([blocks[share::THREADS] for share in range(THREADS)], work)


def over_shares(shares: Sequence[Sequence[S]], work: Callable[[Sequence[S]], T]) -> list[T]:
    """What ``work`` gives for each share, in order; each has a thread of its own."""
    with ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(work, shares))
