"""After a power cut at any moment of a training, every acknowledged result is there, and no round is half there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from coordinator_support import Local, adapter, moved, wait_for
from power_cut import Disk

from mingora_coordinator.store.adapter_file import digest_of
from mingora_coordinator.store.folder import DataFolder
from mingora_coordinator.training.opening import resume
from mingora_coordinator.training.rollback import rollback

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks descriptors up in /proc")
# States a step; a round has some forty steps.
MOST = 24


class Promises:
    """What had been acknowledged by the moment of the cut."""

    def __init__(self) -> None:
        self.results: set[tuple[str, int]] = set()
        self.round = -1  # the newest that somebody was told of
        self.digests: dict[int, str] = {}

    def kept(self, after: Path) -> None:
        """Raises unless the folder after the cut has all of it."""
        folder = DataFolder(after / "data")
        numbers = folder.numbers()
        if not numbers:
            assert self.round < 0
            return
        folder.lock()
        folder.clean()
        opened = resume(folder)
        folder.unlock()
        assert opened.published.number >= self.round
        for number, digest in self.digests.items():
            assert folder.round(number).about()["digest"] == digest
        pending = {result.worker for result in opened.accepted}
        for result in opened.accepted:
            assert digest_of(opened.published.folder.result(result.file)) == result.digest
        for worker, number in self.results:
            if number == opened.published.number:
                assert worker in pending
            else:
                closed = folder.round(number + 1).about()["closed"]
                assert worker in {result["worker"] for result in closed["results"]}
        shutil.rmtree(after)


@pytest.mark.req("COORD-6")
@pytest.mark.parametrize("outer", ["nesterov", "median"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outer: str) -> None:
    top = tmp_path / "disk"
    top.mkdir()
    disk, promises = Disk(top, monkeypatch, MOST), Promises()
    disk.expect(promises.kept)
    with Local(top, min_results=2, rounds=3, outer=outer) as coordinator:
        for number in range(2):
            tur, digest, globe = coordinator.weights()
            promises.round = number
            promises.digests[number] = digest
            for place, worker in enumerate("ab"):
                coordinator.get(f"/gorev?isci={worker}")
                assert coordinator.send(worker, tur, moved(globe, 0.1 * place))[0] == 200
                promises.results.add((worker, number))
            wait_for(lambda number=number: coordinator.training.published.number == number + 1)
            wait_for(lambda number=number: not coordinator.folder.round(number).results.exists())
    assert disk.cuts > 100


@pytest.mark.req("COORD-6")
def test_a_rollback_leaves_a_training_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "disk"
    top.mkdir()
    with Local(top, min_results=1, rounds=9) as coordinator:
        for number in range(3):
            assert coordinator.send("a", number, moved(adapter(), number))[0] == 200
            wait_for(lambda number=number: not coordinator.folder.round(number).results.exists())
        assert coordinator.training.published.number == 3
    seen: set[int] = set()

    def check(after: Path) -> None:
        folder = DataFolder(after / "data")
        folder.lock()
        folder.clean()
        opened = resume(folder)
        folder.unlock()
        assert opened.accepted == []
        seen.add(opened.published.number)
        shutil.rmtree(after)

    disk = Disk(top, monkeypatch, MOST)
    folder = DataFolder(top / "data")
    folder.lock()
    disk.settle()
    disk.expect(check)
    rollback(folder, 1, 1)
    folder.unlock()
    assert {1, 3} <= seen
