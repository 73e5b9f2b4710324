"""Jobs in containers as the worker runs them, beside plain `docker run` of the same image and command, in turn."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import docker

from bench.coordinator_targets import at_most
from bench.docker_image import pinned
from devtools.processes import Processes
from mingora_worker.api import Grant
from mingora_worker.console import Console
from mingora_worker.logs import Pump, Spool
from mingora_worker.results import FOLDER, collect
from mingora_worker.runtimes.base import Launch
from mingora_worker.runtimes.docker.container import ContainerRank
from mingora_worker.runtimes.docker.limits import Allowance
from mingora_worker.runtimes.docker.reference import parse_reference
from mingora_worker.runtimes.docker.runtime import DockerRuntime
from mingora_worker.state import JobFolder

ROUNDS = 20
COMMAND = ["/bin/sh", "-c", "echo done"]
WAITS = ["/bin/sh", "-c", "trap 'exit 0' TERM; echo begun; while :; do sleep 0.01; done"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.01; done"]
GRACE = 0.5
FILES = 1_000
FILE_BYTES = 1 << 10
WRITES = f"import os\nfor n in range({FILES}): open(f'results/{{n}}', 'wb').write(os.urandom({FILE_BYTES}))"
LOG_MIB = 256
LOG_LINES = [
    "/bin/sh",
    "-c",
    f"yes 'a line of sixty-four bytes, as programs print them one by one' | head -c {LOG_MIB}M",
]
LOG_CAP = 1 << 30


def run() -> dict[str, Any]:
    """All figures; milliseconds and MiB/s. Those with a target are objects."""
    with tempfile.TemporaryDirectory(prefix="mingora-bench-") as name, Processes() as processes:
        folder = Path(name)
        with pinned(folder, processes) as image, _runtime(folder / "root", image) as runtime:
            scene = Scene(runtime, image, folder / "root")
            return {**_overhead(scene), **_cancel(scene), **_collect(scene), **_log(scene), "valid": True}


@dataclass
class Scene:
    runtime: DockerRuntime
    image: str
    root: Path
    started: int = 0

    @contextlib.contextmanager
    def rank(self, command: list[str]) -> Iterator[tuple[ContainerRank, JobFolder]]:
        """A started job, which is ended and removed with the block."""
        self.started += 1
        lease = f"lease_{os.getpid()}_{self.started}"
        spec = {"command": command, "resources": {"memoryMiB": 512, "cpu": 1}}
        grant = Grant(lease, 1, "job_1", 0, 1, "", 60, LOG_CAP, spec, [], "")
        folder = JobFolder(self.root / "jobs" / lease)
        folder.create()
        rank = self.runtime.start(Launch(grant, folder, "bench", {}, None))
        try:
            yield rank, folder
        finally:
            rank.close()
            folder.remove()

    def job(self, command: list[str]) -> bytes:
        """A whole job: started, its log read, its end told, its results collected, all of it removed. The log."""
        with self.rank(command) as (rank, folder):
            spool = Spool(folder.log, LOG_CAP)
            pump = Pump(rank.output, spool)
            assert rank.wait(600) is not None
            pump.finish(60)
            rank.collect(lambda: None)
            log = folder.log.read_bytes()
            spool.close()
        return log


@contextlib.contextmanager
def _runtime(root: Path, image: str) -> Iterator[DockerRuntime]:
    (root / "jobs").mkdir(parents=True)
    allowance = Allowance(root, 1024, 1, max_disk=4 << 30)
    runtime = DockerRuntime(root, parse_reference(image), allowance, Console(stream=StringIO()))
    try:
        runtime.clear()
        runtime.prepare()
        yield runtime
    finally:
        runtime.clear()
        runtime.close()


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _overhead(scene: Scene) -> dict[str, Any]:
    """Median times of the shortest job, in turn: ours, the client's `docker run`, and the same calls of its API."""
    with contextlib.closing(docker.from_env()) as client:

        def plain(**options: Any) -> None:
            made = client.containers.create(scene.image, COMMAND, **options)
            made.start()
            made.wait()
            made.remove()

        ways: dict[str, Callable[[], object]] = {
            "job": lambda: scene.job(COMMAND),
            "dockerRun": lambda: _docker_run(scene.image, COMMAND),
            "plainCalls": plain,
            "plainCallsWithoutNetwork": lambda: plain(network_mode="none"),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _round in range(ROUNDS):
            for name, way in ways.items():
                taken[name].append(_ms(way))
    medians = {name: statistics.median(times) for name, times in taken.items()}

    def over(name: str) -> float:
        return (medians["job"] / medians[name] - 1) * 100

    return {
        **{f"{name}Ms": round(value) for name, value in medians.items()},
        "overheadPercent": at_most(over("dockerRun"), 5),
        "overheadToPlainCallsPercent": round(over("plainCalls"), 1),
        "overheadToPlainCallsWithoutNetworkPercent": round(over("plainCallsWithoutNetwork"), 1),
    }


def _docker_run(image: str, command: list[str]) -> None:
    subprocess.run(["docker", "run", "--rm", image, *command], stdout=subprocess.DEVNULL, check=True)


def _cancel(scene: Scene) -> dict[str, Any]:
    forced = [_cancelled(scene, STUBBORN, 0.0) for _round in range(ROUNDS)]
    stubborn = [_cancelled(scene, STUBBORN, GRACE) - GRACE * 1000 for _round in range(ROUNDS)]
    willing = [_cancelled(scene, WAITS, GRACE) for _round in range(ROUNDS)]
    return {
        "forcedCancelMs": at_most(statistics.median(forced), 100),
        "forcedCancelWorstMs": round(max(forced), 1),
        "cancelPastGraceMs": at_most(statistics.median(stubborn), 100),
        "cancelPastGraceWorstMs": round(max(stubborn), 1),
        "cancelOfAWillingJobMs": round(statistics.median(willing), 1),
    }


def _cancelled(scene: Scene, command: list[str], grace: float) -> float:
    """Milliseconds from the wish to the end that is told: TERM, the grace, KILL, as an attempt does it."""
    with scene.rank(command) as (rank, folder):
        spool = Spool(folder.log, LOG_CAP)
        pump = Pump(rank.output, spool)
        spool.wait(0, 6, timeout=20)

        def cancel() -> None:
            rank.terminate()
            if not grace or rank.wait(grace) is None:
                rank.kill()
            assert rank.wait(20) is not None

        taken = _ms(cancel)
        pump.finish(5)
        spool.close()
    return taken


def _collect(scene: Scene) -> dict[str, Any]:
    """Reading the list of 1,000 small results, from the output of a job and from a plain folder."""
    with scene.rank(["python3", "-c", WRITES]) as (rank, folder):
        assert rank.wait(60) is not None
        output = [_ms(lambda: rank.collect(lambda: None)) for _round in range(ROUNDS)]
        assert len(rank.collect(lambda: None).files) == FILES
        native = folder.path / "native"
        (native / FOLDER).mkdir(parents=True)
        for number in range(FILES):
            (native / FOLDER / str(number)).write_bytes(os.urandom(FILE_BYTES))
        plain = [_ms(lambda: collect(native, FOLDER, check=lambda: None)) for _round in range(ROUNDS)]
    return {
        "outputKind": scene.runtime.profile["quota"],
        "collectMs": at_most(statistics.median(output), 30),
        "collectFirstMs": round(output[0], 1),
        "collectNativeMs": at_most(statistics.median(plain), 30),
    }


def _log(scene: Scene) -> dict[str, Any]:
    """MiB/s of a flood of lines: the whole job with its log on disk, beside `docker run` into a pipe that is read."""
    ours, theirs = [], []
    for _round in range(3):
        ours.append(_ms(lambda: scene.job(LOG_LINES)))
        theirs.append(_ms(lambda: _docker_run(scene.image, LOG_LINES)))
    return {
        "logMiBps": round(LOG_MIB / statistics.median(ours) * 1000),
        "logDockerRunMiBps": round(LOG_MIB / statistics.median(theirs) * 1000),
    }
