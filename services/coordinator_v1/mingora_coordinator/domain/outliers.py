"""The protocol's outlier rule: from 3 results on, one whose distance is over a multiple of the median isn't used."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

LEAST = 3


def limit(distances: Iterable[float], factor: float) -> float:
    """The largest distance that is still used; infinite below 3 results, and when ``factor`` is 0 (switched off)."""
    known = list(distances)
    if len(known) < LEAST or factor == 0:
        return float("inf")
    return factor * statistics.median(known)
