"""The open round with everything that belongs to it: put together at once, and replaced at once."""

from __future__ import annotations

from dataclasses import dataclass

from mingora_common.clock import Clock
from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.exact import Grid, grid_for
from mingora_coordinator.domain.rounds import Round
from mingora_coordinator.domain.settings import Settings
from mingora_coordinator.domain.shards import Shards
from mingora_coordinator.store.adapter_file import open_adapter
from mingora_coordinator.store.durable import Lines
from mingora_coordinator.training.closing import Published, keeps_sum, opener
from mingora_coordinator.training.ledger import RoundJournal
from mingora_coordinator.training.opening import Opened
from mingora_coordinator.training.running_sum import RunningSum


@dataclass(frozen=True, slots=True)
class Standing:
    """What is given out now, and what becomes of its results.

    Attributes:
        published: the adapter.
        round: whose results are taken.
        shards, tasks: the slices, and the file that remembers them.
        journal: of the round.
        globe: the adapter's numbers.
        grid: for the results of this adapter.
        running: their sum, for the rules that need no more.
    """

    published: Published
    round: Round
    shards: Shards
    tasks: Lines
    journal: RoundJournal
    globe: Vector
    grid: Grid
    running: RunningSum | None

    @classmethod
    def of(cls, opened: Opened, settings: Settings, clock: Clock, at: float) -> Standing:
        """The newest round as the open one. ``at``: when it opened, on the monotonic clock.

        Raises:
            OSError: the disk.
        """
        published = opened.published
        shards = Shards(settings.shards)
        for worker, shard in opened.tasks.items():
            shards.restore(worker, shard)
        round_ = Round(published.number, at, opened.must_ask)
        for result in opened.accepted:
            round_.accept(result)
        globe = open_adapter(published.folder.adapter)
        grid = grid_for(globe)
        running = None
        if keeps_sum(settings) and published.number < settings.rounds:
            open_result = opener(opened.layout, published.folder)
            running = RunningSum(opened.layout.values, grid, open_result, settings.outlier_factor)
        journal = RoundJournal(published.folder, clock)
        tasks = Lines(published.folder.tasks)
        return cls(published, round_, shards, tasks, journal, globe, grid, running)
