"""The child that aggregates as Flower does, in Flower's environment.

``python -m bench.coordinator_theirs FOLDER COUNT REPEATS WORK…``. Flower has each rule twice: in ``server.strategy``,
over NumPy arrays, and in the newer ``serverapp.strategy``, over its messages' records: those names end in ``-app``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import ArrayRecord, MetricRecord, RecordDict  # type: ignore[import-not-found]
from flwr.server.strategy.aggregate import aggregate, aggregate_krum, aggregate_median  # type: ignore[import-not-found]
from flwr.serverapp.strategy.multikrum import select_multikrum  # type: ignore[import-not-found]
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords  # type: ignore[import-not-found]

from bench.coordinator_data import read
from bench.coordinator_work import Work, tell

WEIGHT = "num-examples"


def main(folder: Path, count: int, repeats: int, wanted: list[str]) -> None:
    """``mean``, ``median``, ``krum``, ``mean-app``, ``krum-app``: of loaded arrays, all of the same weight."""
    results = [(read(folder / f"{number}.safetensors"), 1) for number in range(count)]
    hostile = (count - 3) // 2
    works: dict[str, Work] = {
        "mean": lambda: aggregate(results),
        "median": lambda: aggregate_median(results),
        "krum": lambda: aggregate_krum(results, hostile, 0),
    }
    if any(name.endswith("-app") for name in wanted):
        records = [
            RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({WEIGHT: weight})})
            for arrays, weight in results
        ]
        works["mean-app"] = lambda: aggregate_arrayrecords(records, WEIGHT)
        works["krum-app"] = lambda: select_multikrum(records, hostile, 1)
    tell({name: works[name] for name in wanted}, repeats)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
