"""The training's one state: what is given out, what is taken, and the threads that close rounds.

Everything that a request reads or changes is behind one lock, which nobody holds while a file is written or hashed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from mingora_common.clock import Clock
from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.exact import Grid
from mingora_coordinator.domain.measure import pieces_of
from mingora_coordinator.domain.rounds import Accepted, Closing, Refusal
from mingora_coordinator.domain.settings import Lora, Settings
from mingora_coordinator.domain.shards import MAX_REMEMBERED
from mingora_coordinator.store.adapter_file import Layout
from mingora_coordinator.store.counters import Counter, Counters
from mingora_coordinator.store.folder import DataFolder
from mingora_coordinator.training.closing import Published, close
from mingora_coordinator.training.ledger import Ledger, RoundJournal, unfinished
from mingora_coordinator.training.opening import Opened, resume
from mingora_coordinator.training.standing import Standing

# How long the answer to the result that closes a round may wait for the next one, so that its sender sees it at once.
CLOSE_PATIENCE = 5.0
# After an error of the disk.
RETRY_SECONDS = 5.0
_LONG = 3600.0

_log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """Work for a worker: the published adapter and the slice of the data."""

    published: Published
    shard: int


class Wait(Exception):
    """The worker's result of the round ``number`` is there, or the round is just being closed."""

    def __init__(self, number: int) -> None:
        self.number = number


class Over(Exception):
    """The training has ended."""


class Refused(Exception):
    """The open round doesn't take the result."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Training:
    """The training in ``folder``, which is locked and has a round.

    Args:
        clock: tells the wall-clock time; time limits run on the monotonic clock.

    Raises:
        FolderError: the folder is damaged.
    """

    def __init__(self, folder: DataFolder, settings: Settings, clock: Clock) -> None:
        folder.clean()
        self.folder = folder
        self.settings = settings
        self.counters = Counters(folder.counters)
        self.lora: Lora = folder.lora()
        self.ledger = Ledger(folder)
        self._clock = clock
        self._changed = threading.Condition()
        self._adding = ThreadPoolExecutor(1, "adding")
        self._telling = ThreadPoolExecutor(1, "telling")
        self._contacts: OrderedDict[str, float] = OrderedDict()
        self._stopping = False
        self._failing = False
        opened = resume(folder)
        self.layout: Layout = opened.layout
        self.pieces = pieces_of(opened.layout.header)
        age = max(0.0, (clock.now() - opened.published.opened) / 1000)
        self._now = Standing.of(opened, settings, clock, time.monotonic() - age)
        if opened.accepted_ever is not None:
            self.counters.set(Counter.ACCEPTED, opened.accepted_ever)
        for result in opened.accepted:
            self._sum_up(self._now, result)
        for number in unfinished(folder):
            self._tell(number, RoundJournal(folder.round(number), clock))
        self._closer = threading.Thread(target=self._close_rounds, name="closing", daemon=True)
        self._closer.start()

    @property
    def published(self) -> Published:
        """What is given out now; a round's number and digest always belong together."""
        return self._now.published

    def standing(self) -> tuple[Vector, Grid]:
        """The numbers of what is given out now, and the grid for its results."""
        now = self._now
        return now.globe, now.grid

    @property
    def over(self) -> bool:
        return self.published.number >= self.settings.rounds

    def pending(self) -> list[str]:
        """Nicknames whose result of the open round is recorded, in the order of their arrival."""
        with self._changed:
            return list(self._now.round.accepted)

    def contacts(self, most: int | None = None) -> dict[str, float]:
        """Seconds since each worker's last request, of the ``most`` that were heard of last; the latest come first."""
        now = time.monotonic()
        with self._changed:
            latest = list(itertools.islice(reversed(self._contacts.items()), most))
        return {worker: now - at for worker, at in latest}

    def heard_of(self, worker: str) -> None:
        """A request of this worker's has come."""
        with self._changed:
            self._contacts[worker] = time.monotonic()
            self._contacts.move_to_end(worker)
            if len(self._contacts) > MAX_REMEMBERED:
                self._contacts.popitem(last=False)

    def task(self, worker: str) -> Task:
        """The worker's task of the open round.

        Raises:
            Over: there are no more rounds.
            Wait: not now.
        """
        with self._changed:
            now = self._now
            if self.over:
                raise Over
            if now.round.has_result_of(worker) or now.round.closing:
                raise Wait(now.round.number)
            shard, new = now.shards.of(worker)
            if new:
                # Not durable: a killed process leaves it, and after a power cut, or when the disk is full, a worker may
                # get another slice after a restart.
                with contextlib.suppress(OSError):
                    now.tasks.append({"worker": worker, "shard": shard}, durable=False)
            return Task(now.published, shard)

    def check(self, worker: str, number: int) -> None:
        """Raise Refused unless the open round takes a result of this worker for round ``number`` now."""
        with self._changed:
            now = self._now
            refusal = now.round.refusal(worker, number, self.settings, asked=worker in now.shards)
            if refusal is not None:
                raise Refused(refusal)

    def record(self, result: Accepted, number: int, path: Path) -> None:
        """Make a checked result count: its file at ``path``, which is durable, becomes the round's.

        Raises:
            Refused: another was faster, or the round has closed.
            OSError: the disk is full, or fails; nothing is left of the result.
        """
        with self._changed:
            self.check(result.worker, number)
            now = self._now
            now.round.reserve(result.worker)
        target = now.published.folder.result(result.file)
        try:
            path.rename(target)
            now.journal.accepted(result)
        except BaseException:
            target.unlink(missing_ok=True)
            with self._changed:
                now.round.release(result.worker)
                self._changed.notify_all()
            raise
        self.counters.add(Counter.ACCEPTED, 1)
        with self._changed:
            now.round.accept(result)
            self._sum_up(now, result)
            self._changed.notify_all()
            if len(now.round.accepted) >= self.settings.min_results:
                self._changed.wait_for(lambda: self._now is not now or self._stopping, CLOSE_PATIENCE)

    def refused(self, worker: str, reason: str, **more: Any) -> None:
        """A result was refused: count it, and record it in the open round's journal."""
        self.counters.add(Counter.REFUSED, 1)
        # A journal is closed after the next one has taken its place.
        if not self._now.journal.refused(worker, reason, **more):
            self._now.journal.refused(worker, reason, **more)

    def health(self) -> dict[str, bool]:
        """Whether each part can do its work, by name."""
        return {
            "closing": self._closer.is_alive() and not self._failing,
            "adapter": self.published.folder.adapter.is_file(),
            "folder": os.access(self.folder.path, os.W_OK),
        }

    def stop(self) -> None:
        """Let the threads end; a round that is just being closed is published first."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._closer.join()
        for pool in (self._adding, self._telling):
            pool.shutdown(cancel_futures=True)

    def _sum_up(self, now: Standing, result: Accepted) -> None:
        if now.running is not None:
            self._adding.submit(_logged, now.running.add, result)

    def _close_rounds(self) -> None:
        while True:
            with self._changed:
                by = self._wait_until_due()
                if by is None:
                    return
                now = self._now
                now.round.close()
                self._changed.wait_for(lambda: self._now.round.settled)
                accepted = list(now.round.accepted.values())
            self._close(now, accepted, by)

    def _close(self, now: Standing, accepted: list[Accepted], by: Closing) -> None:
        """Publish what the results make, and open the next round; leaves it when the process is to stop before."""
        made = self._persist(self._make, now, accepted, by)
        if made is None:
            return
        published, closed = made
        following = self._persist(self._follow, published)
        if following is None:
            return
        self.ledger.closed(closed)
        with self._changed:
            self._now = following
            now.tasks.close()
            self._changed.notify_all()
        number, seconds = now.round.number, closed["seconds"]
        _log.info("round_closed", round=number, results=len(accepted), by=by.value, seconds=seconds)
        self._tell(number, now.journal)

    def _wait_until_due(self) -> Closing | None:
        """With the lock held; None when the process is to stop."""
        while not self._stopping:
            at, now = self._now.round, time.monotonic()
            by = at.due(now, self.settings)
            if by is not None:
                return by
            left = at.deadline(self.settings) - now
            self._changed.wait(left if at.accepted and left < _LONG else _LONG)
        return None

    def _make(self, now: Standing, accepted: list[Accepted], by: Closing) -> tuple[Published, dict[str, Any]]:
        return close(
            self.folder,
            self.layout,
            self.settings,
            now.published,
            accepted,
            now.running,
            by,
            self._clock.now,
            self.counters[Counter.ACCEPTED],
        )

    def _follow(self, published: Published) -> Standing:
        must_ask = published.number <= self.folder.highest_undone()
        opened = Opened(published, self.layout, [], {}, must_ask, None)
        return Standing.of(opened, self.settings, self._clock, time.monotonic())

    def _persist(self, work: Callable[..., T], *arguments: Any) -> T | None:
        """What ``work`` gives, which is tried until the disk lets it; None when the process is to stop."""
        while True:
            try:
                done = work(*arguments)
                self._failing = False
                return done
            except Exception as error:  # noqa: BLE001 - a round that never closes would be worse than any try
                self._failing = True
                _log.error("round_not_closed", round=self.published.number, exc_info=error)
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, RETRY_SECONDS):
                    return None

    def _tell(self, number: int, journal: RoundJournal) -> None:
        self._telling.submit(_logged, self.ledger.finish, number, self.layout, journal, lambda: self._stopping)


def _logged(work: Callable[..., None], *arguments: Any) -> None:
    """What a pool's thread does; an error there would be seen by nobody."""
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001 - each such work is made up for: at the close, or at the next start
        _log.error("background_work_failed", work=work.__qualname__, exc_info=error)
