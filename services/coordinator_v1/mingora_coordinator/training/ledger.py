"""The ledger: what came of every result, on the disk by rounds and, of the latest rounds, in memory for who looks.

A round's ``journal.jsonl`` has a line for each result that was accepted (durable before it is acknowledged) or refused,
and one for the round's close: which results were used, and the cosine of each one's step to the mean step.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import structlog

from mingora_common.clock import Clock
from mingora_coordinator.domain.blocks import MOST, Block, Vector, over_blocks
from mingora_coordinator.domain.exact import Doubles
from mingora_coordinator.domain.rounds import Accepted
from mingora_coordinator.domain.settings import NESTEROV
from mingora_coordinator.store.adapter_file import Layout, open_adapter, open_vector
from mingora_coordinator.store.durable import Lines, last_line, read_lines, sync_folder
from mingora_coordinator.store.folder import DataFolder, RoundFolder
from mingora_coordinator.training.closing import opener

KEPT_ROUNDS = 200
KEPT_RESULTS = 256
# Of one round; what is refused beyond it is counted only, so that nobody fills the disk.
MAX_REFUSED_LINES = 10_000

_log = structlog.get_logger()


class RoundJournal:
    """The open round's journal. Safe for threads."""

    def __init__(self, folder: RoundFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._refused = sum(line["event"] == "refused" for line in read_lines(folder.journal))
        self._lines = Lines(folder.journal)
        self._closed = False

    def accepted(self, result: Accepted) -> None:
        """Record a result whose file is durable under its name in the folder of results; this makes it count.

        Raises:
            OSError: the disk; nothing is recorded.
        """
        sync_folder(self._folder.results)
        with self._lock:
            entry = {"event": "accepted", "at": self._clock.now(), "result": asdict(result)}
            self._lines.append(entry, durable=True)

    def refused(self, worker: str, reason: str, **more: Any) -> bool:
        """Record a refusal; False when the round has been closed meanwhile.

        One that can't be written is logged only: nothing hangs on it.
        """
        with self._lock:
            if self._closed:
                return False
            self._refused += 1
            if self._refused > MAX_REFUSED_LINES:
                return True
            entry = {"event": "refused", "at": self._clock.now(), "worker": worker, "reason": reason, **more}
            try:
                self._lines.append(entry, durable=False)
            except OSError as error:
                _log.error("ledger_not_written", error=str(error))
            return True

    def closed(self, entry: dict[str, Any]) -> None:
        """Record the close."""
        with self._lock:
            self._lines.append({"event": "closed", "at": self._clock.now(), **entry}, durable=True)
            self._closed = True
            self._lines.close()


class Ledger:
    """What is known of closed rounds, the latest :data:`KEPT_ROUNDS` of them."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._rounds: deque[dict[str, Any]] = deque(map(_kept, closed_rounds(folder, KEPT_ROUNDS)), maxlen=KEPT_ROUNDS)

    def rounds(self) -> list[dict[str, Any]]:
        """Closed rounds, oldest first, as :func:`closed_rounds` gives them, with the ``count`` of results and of
        those ``used``; of more than :data:`KEPT_RESULTS` some are there."""
        with self._lock:
            return list(self._rounds)

    def closed(self, closed: dict[str, Any]) -> None:
        """A round has been closed; its cosines aren't known yet."""
        with self._lock:
            self._rounds.append(_kept(closed))

    def finish(self, number: int, layout: Layout, journal: RoundJournal, stopping: Callable[[], bool]) -> None:
        """Record the close of round ``number`` and remove its results."""
        before, after = self._folder.round(number), self._folder.round(number + 1)
        closed = after.about()["closed"]
        told = _with_cosines(closed, layout, before, after, stopping)
        if told is None:
            return  # the next start does it
        journal.closed(told)
        self._folder.drop_results(before)
        with self._lock:
            for place, entry in enumerate(self._rounds):
                if entry["round"] == number:
                    self._rounds[place] = _kept(told)


def unfinished(folder: DataFolder) -> list[int]:
    """Closed rounds whose close a killed process hasn't recorded."""
    return [number for number in folder.numbers()[:-1] if _is_unfinished(folder.round(number))]


def _is_unfinished(closed: RoundFolder) -> bool:
    line = last_line(closed.journal)
    # A round that a rollback was about to open again when it was killed has its close behind it.
    return closed.results.is_dir() and (line is None or line["event"] != "reopened")


def closed_rounds(folder: DataFolder, latest: int | None = None) -> list[dict[str, Any]]:
    """How rounds were closed, oldest first: with the cosines where the journal has them."""
    numbers = folder.numbers()
    found = []
    for number in numbers[1:] if latest is None else numbers[1:][-latest:]:
        closed: dict[str, Any] = folder.round(number).about()["closed"]
        line = last_line(folder.round(number - 1).journal)
        if line is not None and line["event"] == "closed":
            closed = {name: value for name, value in line.items() if name not in ("event", "at")}
        found.append(closed)
    return found


def _kept(closed: dict[str, Any]) -> dict[str, Any]:
    """As it stays in memory: how many results there were and were used, and of many some, spread over the distances."""
    results = closed["results"]
    counts = {"count": len(results), "used": sum(result["used"] for result in results)}
    if len(results) > KEPT_RESULTS:
        ranked = sorted(results, key=lambda result: float(result["distance"]))
        step = (len(ranked) - 1) / (KEPT_RESULTS - 1)
        results = [ranked[round(place * step)] for place in range(KEPT_RESULTS)]
    return {**closed, **counts, "results": results}


def entries(folder: DataFolder) -> Iterator[dict[str, Any]]:
    """Every line of every journal, with the round's number; rounds that were undone come first, and say so."""
    for round_folder in folder.undone():
        number = int(round_folder.path.name.rpartition("-")[2])
        for line in read_lines(round_folder.journal):
            yield {"round": number, "undone": True, **line}
    for number in folder.numbers():
        for line in read_lines(folder.round(number).journal):
            yield {"round": number, **line}


def _with_cosines(
    closed: dict[str, Any], layout: Layout, before: RoundFolder, after: RoundFolder, stopping: Callable[[], bool]
) -> dict[str, Any] | None:
    """``closed`` with a cosine for each result: of its step from the global adapter to the mean step of those used."""
    recorded = {
        line["result"]["digest"] + line["result"]["worker"]: Accepted(**line["result"])
        for line in read_lines(before.journal)
        if line["event"] == "accepted"
    }
    globe = open_adapter(before.adapter)
    step_of = _mean_step(closed, layout, before, after, globe)
    open_result = opener(layout, before)
    results: list[dict[str, Any]] = []
    for result in closed["results"]:
        if stopping():
            return None
        stored = open_result(recorded[result["digest"] + result["worker"]])
        results.append({**result, "cosine": _cosine(globe, stored, step_of)})
    return {**closed, "results": results}


def _mean_step(
    closed: dict[str, Any], layout: Layout, before: RoundFolder, after: RoundFolder, globe: Vector
) -> Callable[[Block, Doubles], None]:
    """Mean minus W: what the published adapters differ by or, of the reference outer step, what the momenta do."""
    if closed["outer"] != NESTEROV:
        made = open_adapter(after.adapter)

        def difference(block: Block, out: Doubles) -> None:
            np.subtract(made[block], globe[block], out=out, dtype=np.float64)

        return difference
    momentum = open_vector(after.momentum, 0, layout.values)
    earlier = open_vector(before.momentum, 0, layout.values) if before.momentum.exists() else None
    decay = float(closed["decay"])

    def added(block: Block, out: Doubles) -> None:
        np.negative(momentum[block], out=out, dtype=np.float64)
        if earlier is not None:
            out += decay * earlier[block].astype(np.float64)

    return added


def _cosine(globe: Vector, stored: Vector, step_of: Callable[[Block, Doubles], None]) -> float | None:
    """None where one of the steps is nothing."""

    def work(blocks: Sequence[Block]) -> tuple[float, float, float]:
        mean, own = np.empty(MOST), np.empty(MOST)
        product, mean_square, own_square = 0.0, 0.0, 0.0
        for block in blocks:
            size = block.stop - block.start
            step_of(block, mean[:size])
            np.subtract(stored[block], globe[block], out=own[:size], dtype=np.float64)
            product += float(np.einsum("i,i->", mean[:size], own[:size]))
            mean_square += float(np.einsum("i,i->", mean[:size], mean[:size]))
            own_square += float(np.einsum("i,i->", own[:size], own[:size]))
        return product, mean_square, own_square

    shares = over_blocks(globe.size, MOST, work)
    product, mean_square, own_square = (math.fsum(column) for column in zip(*shares, strict=True))
    length = math.sqrt(mean_square) * math.sqrt(own_square)
    return round(product / length, 6) if length and math.isfinite(length) else None
