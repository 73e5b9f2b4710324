"""Closing a round: which results are used, the next adapter, and its publication."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mingora_coordinator.domain import outliers
from mingora_coordinator.domain.blocks import Vector
from mingora_coordinator.domain.outer import mean_step, nesterov_step
from mingora_coordinator.domain.robust import RULES
from mingora_coordinator.domain.rounds import Accepted, Closing
from mingora_coordinator.domain.settings import MEAN, NESTEROV, Settings
from mingora_coordinator.store.adapter_file import Layout, digest_of, new_vector, open_adapter, open_vector
from mingora_coordinator.store.durable import sync_file
from mingora_coordinator.store.folder import DataFolder, RoundFolder
from mingora_coordinator.training.running_sum import Open, RunningSum


@dataclass(frozen=True, slots=True)
class Published:
    """A global adapter that is given out.

    Attributes:
        number: of the round that starts with it.
        digest: SHA-256 of its file, hex.
        size: of its file, in bytes.
        folder: where it is.
        opened: milliseconds since the epoch.
    """

    number: int
    digest: str
    size: int
    folder: RoundFolder
    opened: int


@dataclass(frozen=True, slots=True)
class Selection:
    """A closing round's results in their canonical order, and the largest distance of those that are used."""

    results: list[Accepted]
    limit: float

    @classmethod
    def of(cls, accepted: Sequence[Accepted], factor: float) -> Selection:
        results = sorted(accepted, key=lambda result: result.order)
        return cls(results, outliers.limit((result.distance for result in results), factor))

    @property
    def used(self) -> list[Accepted]:
        """The results that the outlier rule leaves."""
        return [result for result in self.results if result.distance <= self.limit]


def close(
    folder: DataFolder,
    layout: Layout,
    settings: Settings,
    current: Published,
    accepted: Sequence[Accepted],
    running: RunningSum | None,
    by: Closing,
    now: Callable[[], int],
    accepted_ever: int,
) -> tuple[Published, dict[str, Any]]:
    """Make and publish the next adapter; it is durable once this returns. Also what ``round.json`` tells of the close.

    ``accepted_ever``: results that were accepted since the training began, for the counter of a killed process.

    Raises:
        OSError: the disk is full, or fails. Nothing has changed.
    """
    began = time.monotonic()
    selection = Selection.of(accepted, settings.outlier_factor)
    prepared = folder.prepare()
    _compute(layout, settings, current, selection.used, running, prepared)
    digest, momentum = _settle(prepared)
    opened = now()
    closed = {
        "round": current.number,
        "by": by.value,
        "outer": settings.outer,
        "decay": settings.outer_decay,
        "opened": current.opened,
        "closed": opened,
        "seconds": round(time.monotonic() - began, 3),
        "results": [_told(result, result.distance <= selection.limit) for result in selection.results],
    }
    about = {
        "number": current.number + 1,
        "digest": digest,
        "momentum": momentum,
        "opened": opened,
        "acceptedBefore": accepted_ever,
        "closed": closed,
    }
    prepared.write_about(about)
    published = folder.publish(prepared, current.number + 1)
    size = published.adapter.stat().st_size
    return Published(current.number + 1, digest, size, published, opened), closed


def opener(layout: Layout, folder: RoundFolder) -> Open:
    """How a result that is recorded in ``folder`` is read."""

    def open_result(result: Accepted) -> Vector:
        return open_vector(folder.result(result.file), result.data_start, layout.values)

    return open_result


def _compute(
    layout: Layout,
    settings: Settings,
    current: Published,
    used: Sequence[Accepted],
    running: RunningSum | None,
    prepared: RoundFolder,
) -> None:
    globe = open_adapter(current.folder.adapter)
    out = new_vector(prepared.adapter, layout.prefix, layout.values)
    if running is None:
        open_result = opener(layout, current.folder)
        RULES[settings.outer](globe, [open_result(result) for result in used], out)
    elif settings.outer == MEAN:
        mean_step(running.mean_of(used), out)
    else:
        before = current.folder.momentum
        momentum = open_vector(before, 0, layout.values) if before.exists() else None
        nesterov_step(
            globe,
            momentum,
            running.mean_of(used),
            settings.outer_rate,
            settings.outer_decay,
            out,
            new_vector(prepared.momentum, b"", layout.values),
        )


def _settle(prepared: RoundFolder) -> tuple[str, str | None]:
    """Make the adapter and the momentum durable, and meanwhile take their digests."""
    files = [path for path in (prepared.adapter, prepared.momentum) if path.exists()]
    with ThreadPoolExecutor(2 * len(files)) as pool:
        synced = [pool.submit(sync_file, path) for path in files]
        digests = list(pool.map(digest_of, files))
        for each in synced:
            each.result()
    return digests[0], digests[1] if len(digests) > 1 else None


def _told(result: Accepted, used: bool) -> dict[str, Any]:
    return {"worker": result.worker, "digest": result.digest, "distance": result.distance, "used": used}


def keeps_sum(settings: Settings) -> bool:
    """Whether the rule needs nothing of the results but their mean."""
    return settings.outer in (MEAN, NESTEROV)
