"""SIGKILL at every named point of every program on the main path; what was acknowledged is there afterwards, once.

The points aren't listed: one undisturbed run records them, so a new route, task or request brings its own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_faults import Faults, Hunter, Keeper, at_rest, play
from e2e_support import RunningStack, User

PROGRAMS = ("api.", "blobstore.", "scheduler.", "tasks.", "mingora.", "worker.")
RUNS = 24
VALKEY_POINTS = ("api.jobs", "api.logs", "api.events", "scheduler.", "tasks.")


class Scene:
    """A stack, a user with a worker, and every point that an undisturbed run passes."""

    def __init__(self, folder: Path) -> None:
        self.faults = Faults(folder / "faults")
        self.stack = RunningStack(folder / "data", env=self.faults.env)
        self.folder = folder
        self.user = User(self.stack, folder / "home")
        self.user.env |= self.faults.env
        self.keeper = Keeper(self.user)
        self.names: list[str] = []

    def begin(self) -> None:
        """Start everything, and play once undisturbed to learn the points."""
        self.stack.start()
        self.user.create().login()
        with self.faults.recording() as names:
            self.keeper.start()
            self.play("undisturbed")
        self.names = names

    def play(self, name: str) -> None:
        folder = self.folder / name
        folder.mkdir()
        play(self.user, folder)

    def of(self, *programs: str) -> list[str]:
        """The recorded points of these programs."""
        return [name for name in self.names if name.startswith(programs)]

    def close(self) -> None:
        self.keeper.stop()
        self.user.close()
        self.stack.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("faults"))
    try:
        scene.begin()
        yield scene
    finally:
        scene.close()


@pytest.mark.req("OPS-2")
def test_every_program_has_its_points(scene: Scene) -> None:
    for program in PROGRAMS:
        assert len(scene.of(program)) >= 20, f"{program}: {scene.of(program)}"


@pytest.mark.req("OPS-2", "CLI-9", "CLI-10", "BLOB-2", "JOB-4", "JOB-7", "WORK-6")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_acknowledged_is_lost_whoever_is_killed_when(scene: Scene, run: int) -> None:
    armed = [name for program in PROGRAMS for name in scene.of(program)[run::RUNS]]
    for name in armed:
        scene.faults.arm(name)
    scene.keeper.renew()
    try:
        scene.play(f"run-{run}")
    finally:
        left = scene.faults.left()
        print("killed at", sorted(set(armed) - left))
    at_rest(scene.stack)
    assert left < set(armed)
    assert set(scene.keeper.ends) <= {-signal.SIGKILL}


@pytest.mark.req("OPS-2", "JOB-9")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", range(4))
def test_nothing_is_lost_when_valkey_is_killed(scene: Scene, run: int) -> None:
    """Points at which others are busy; Valkey has none of its own."""
    hunter = Hunter(scene.stack, scene.faults, scene.of(*VALKEY_POINTS)[run::4])
    hunter.start()
    try:
        scene.play(f"valkey-{run}")
    finally:
        hunter.stop()
        scene.faults.left()
    at_rest(scene.stack)
    assert hunter.kills
