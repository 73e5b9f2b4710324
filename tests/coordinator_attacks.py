"""Attacks on a round, and how far each rule's new adapter then is from the mean of the honest results.

Run as a program it writes the tables into docs/attacks.md, between its two marks.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mingora_coordinator.domain import outliers
from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.exact import grid_for, wide_mean_of
from mingora_coordinator.domain.header import Header, Tensor
from mingora_coordinator.domain.measure import NotFinite, measure, pieces_of
from mingora_coordinator.domain.outer import mean_step, nesterov_step
from mingora_coordinator.domain.robust import RULES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "attacks.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"

COUNT, HOSTILE, SIZE = 11, 3, 1000
OUTLIER_FACTOR = 5.0
# Deviations of the honest values by which colluders move each coordinate; little enough to look honest.
SHIFT = 1.5

Rule = Callable[[Vector, Sequence[Vector], Vector], None]
Attack = Callable[[Vector, Sequence[Vector], int], list[Vector]]


@dataclass(frozen=True)
class Scene:
    """A global adapter and the honest results: steps of length 1 about, half of it common, half their own."""

    globe: Vector
    honest: list[Vector]

    @classmethod
    def drawn(cls, honest: int, size: int = SIZE, seed: int = 0) -> Scene:
        numbers = np.random.default_rng(seed)

        def direction() -> npt.NDArray[np.float64]:
            return np.asarray(numbers.standard_normal(size) * size**-0.5)

        globe, common = numbers.standard_normal(size), direction()
        steps = [(common + direction()) / np.sqrt(2) for _ in range(honest)]
        return cls(globe.astype(np.float32), [(globe + step).astype(np.float32) for step in steps])

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        return np.asarray(np.mean(self.honest, axis=0, dtype=np.float64))

    def distance(self, adapter: Vector) -> float:
        """From the honest mean, in lengths of the honest mean's own step."""
        return float(np.linalg.norm(adapter - self.mean) / np.linalg.norm(self.globe - self.mean))


def sign_flip(globe: Vector, honest: Sequence[Vector], hostile: int) -> list[Vector]:
    """Each the step of an honest one, backwards."""
    return [globe - (result - globe) for result in honest[:hostile]]


def times_1000(globe: Vector, honest: Sequence[Vector], hostile: int) -> list[Vector]:
    """Each the step of an honest one, a thousand times as long."""
    return [globe + (result - globe) * np.float32(1000) for result in honest[:hostile]]


def all_nan(globe: Vector, _honest: Sequence[Vector], hostile: int) -> list[Vector]:
    """The coordinator refuses them at the door."""
    return [np.full_like(globe, np.nan)] * hostile


def collusion(_globe: Vector, honest: Sequence[Vector], hostile: int) -> list[Vector]:
    """All the same: each coordinate a little off the honest mean (Baruch et al. 2019, "A Little Is Enough")."""
    values = np.array(honest, np.float64)
    return [(values.mean(axis=0) - SHIFT * values.std(axis=0)).astype(np.float32)] * hostile


ATTACKS: Mapping[str, Attack] = {
    "all NaN": all_nan,
    "sign flip": sign_flip,
    "× 1000": times_1000,
    "collusion": collusion,
}


def _mean(_globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    mean_step(wide_mean_of(results), out)


def _nesterov(globe: Vector, results: Sequence[Vector], out: Vector) -> None:
    """The first round, with the default rate and decay."""
    nesterov_step(globe, None, wide_mean_of(results), 1.0, 0.5, out, np.empty_like(out))


ALL_RULES: Mapping[str, Rule] = {"mean": _mean, "nesterov": _nesterov, **RULES}


def measured(scene: Scene, results: Sequence[Vector]) -> list[tuple[Vector, float]]:
    """What the door lets in, each with its distance to the global adapter."""
    header = Header((Tensor("weight", "F32", (scene.globe.size,), 0, scene.globe.nbytes),), 0)
    let_in = []
    for result in results:
        with contextlib.suppress(NotFinite):
            found = measure(header, pieces_of(header), scene.globe, result, grid_for(scene.globe))
            let_in.append((result, found.distance))
    return let_in


def closed(rule: str, scene: Scene, hostile: Sequence[Vector], factor: float = 0) -> Vector:
    """The next adapter after a round of the scene's honest results and these; ``factor`` 0: no outlier rule."""
    accepted = measured(scene, [*hostile, *scene.honest])
    limit = outliers.limit((distance for _result, distance in accepted), factor)
    out = np.empty_like(scene.globe)
    ALL_RULES[rule](scene.globe, [result for result, distance in accepted if distance <= limit], out)
    return out


@functools.cache
def figures(factor: float) -> dict[str, list[float]]:
    """For each rule the distance under each attack."""
    scene = Scene.drawn(COUNT - HOSTILE)
    found: dict[str, list[float]] = {}
    for rule in ALL_RULES:
        found[rule] = []
        for attack in ATTACKS.values():
            hostile = attack(scene.globe, scene.honest, HOSTILE)
            found[rule].append(scene.distance(closed(rule, scene, hostile, factor)))
    return found


def tables() -> str:
    """Both tables in Markdown: with the outlier rule and without it."""
    parts = []
    for title, factor in (("With the outlier rule, as the coordinator runs", OUTLIER_FACTOR), ("Without it", 0)):
        head = ["Rule", *ATTACKS]
        lines = [f"{title} (`--outlier-factor {factor:g}`):", "", _line(head), _line(["---"] * len(head))]
        lines += [_line([f"`{rule}`", *map(_shown, row)]) for rule, row in figures(factor).items()]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _shown(distance: float) -> str:
    return f"{distance:.2f}" if distance < 10 else f"{distance:.0f}"


def main() -> None:
    """Write the tables anew."""
    head, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
