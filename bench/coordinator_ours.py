"""The child that aggregates as the coordinator does.

``python -m bench.coordinator_ours FOLDER COUNT REPEATS WORK…``.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path

from bench.coordinator_work import Work, tell
from mingora_coordinator.domain.exact import ExactSum, grid_for
from mingora_coordinator.domain.outer import mean_step, nesterov_step
from mingora_coordinator.domain.robust import RULES
from mingora_coordinator.store.adapter_file import open_adapter


def main(folder: Path, count: int, repeats: int, wanted: list[str]) -> None:
    """``mean`` and ``nesterov`` of what was summed up before, ``stored`` (mean) from files alone, or a robust rule.

    The next adapter's values go to an array that is there: making its file, and making that durable, is measured by
    ``bench.coordinator_publish``.
    """
    globe = open_adapter(folder / "globe.safetensors")
    # Each result a file of its own: with fewer files than results, the same ones over and over.
    files = sorted(folder.glob("[0-9]*.safetensors"))
    results = [open_adapter(path) for path in itertools.islice(itertools.cycle(files), count)]
    grid, out = grid_for(globe), globe.copy()

    def summed() -> ExactSum:
        total = ExactSum(globe.size, grid)
        total.add(*results)
        return total

    works: dict[str, Work] = {name: partial(rule, globe, results, out) for name, rule in RULES.items()}
    works["stored"] = lambda: mean_step(summed().mean_of, out)
    if "mean" in wanted or "nesterov" in wanted:
        total = summed()
        momentum, pushed = globe.copy(), globe.copy()
        works["mean"] = lambda: mean_step(total.mean_of, out)
        works["nesterov"] = lambda: nesterov_step(globe, momentum, total.mean_of, 1.0, 0.5, out, pushed)
    tell({name: works[name] for name in wanted}, repeats)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
