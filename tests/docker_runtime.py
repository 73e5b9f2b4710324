"""Jobs in the Docker runtime without a platform: what an attempt does with a runtime, and all that came of it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from docker_support import Registry
from launches import launch

from mingora_worker.console import Console
from mingora_worker.logs import Pump, Spool
from mingora_worker.outcome import Ended, Outcome, by_exit, failed
from mingora_worker.results import Collected, TooManyFiles
from mingora_worker.runtimes.base import Running, StartFailed
from mingora_worker.runtimes.docker.container import ContainerRank
from mingora_worker.runtimes.docker.limits import Allowance
from mingora_worker.runtimes.docker.reference import parse_reference
from mingora_worker.runtimes.docker.runtime import DockerRuntime

MEMORY_MIB = 96
"""What a job gets that asks for nothing; half of it may be in /tmp, and as much in /dev/shm, unlike by default."""
OUTPUT_BYTES = 16 << 20
"""What every job may have under results/: the least that a worker without free disk gives."""
MOST_SECONDS = 30.0
"""No job of a test takes longer; one that does is killed and has timed out."""
PUMP_SECONDS = 5.0
SHOWN_BYTES = 4096
LOG_CAP = 100 << 20
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
READY = b"ready\n"
"""The line after which a job wants to be cancelled."""

ENTRY_MARK = "/tmp/entry"
HEALTH_MARK = "/tmp/health"
ROOT_CAT = "/usr/bin/rootcat"
UNFRIENDLY = (
    f"""ENTRYPOINT ["sh", "-c", "echo ran >{ENTRY_MARK}; exec \\"$@\\"", "entry"]""",
    f"HEALTHCHECK --interval=50ms --timeout=5s CMD echo checked >{HEALTH_MARK}",
    "USER 4321:4321",
    "WORKDIR /var/tmp",
    "ENV NVIDIA_VISIBLE_DEVICES=all TINI_VERBOSITY=0",
    f"RUN cp /bin/cat {ROOT_CAT} && chmod 4755 {ROOT_CAT}",
)
"""Lines of an image that does what it can against a job's container: nothing of it may be in force."""


def unfriendly(registry: Registry) -> str:
    return registry.image("unfriendly", ["USER root", UNFRIENDLY[-1], *UNFRIENDLY[:-1]])


@dataclass(frozen=True)
class Ran:
    """One rank from its start to its end. `results`: the files that were kept, with what is in the short ones.

    `left`: processes of its container that this machine still had when its end was told.
    """

    outcome: Outcome
    log: bytes
    truncated: bool
    results: Mapping[str, bytes] = field(default_factory=dict)
    refused: Sequence[str] = ()
    warnings: Sequence[str] = ()
    usage: Any = None
    seconds: float = 0.0
    left: Sequence[str] = ()

    @property
    def end(self) -> tuple[str, int | None, int | None]:
        """Reason (or "succeeded"), exit code and signal."""
        code = self.outcome.code or self.outcome.outcome
        return code, self.outcome.exit.code, self.outcome.exit.signal

    @property
    def text(self) -> str:
        return self.log.decode("utf-8", "replace")


@contextmanager
def unprepared(root: Path, reference: str) -> Iterator[DockerRuntime]:
    """A runtime of its own folder below which nothing is left afterwards, in the engine neither."""
    (root / "jobs").mkdir(parents=True)
    allowance = Allowance(root, MEMORY_MIB, 1, max_disk=1)
    runtime = DockerRuntime(root, parse_reference(reference), allowance, Console(stream=StringIO()))
    try:
        yield runtime
    finally:
        runtime.clear()
        runtime.close()


@contextmanager
def ready(root: Path, reference: str) -> Iterator[DockerRuntime]:
    """:func:`unprepared`, whose canary has proved the engine."""
    with unprepared(root, reference) as runtime:
        runtime.prepare()
        yield runtime


def run(
    runtime: DockerRuntime,
    command: Sequence[str],
    *,
    files: Mapping[str, str] | None = None,
    grace: float | None = None,
    log_cap: int = LOG_CAP,
    data: Mapping[str, Path] | None = None,
    during: Callable[[Running], object] = lambda _running: None,
    after: Callable[[Running], object] = lambda _running: None,
    **spec: Any,
) -> Ran:
    """Runs one rank; `spec` is of job.json. With `grace` it is cancelled once it has said READY.

    `during` is called again and again while it runs, `after` once it has ended and all is read.
    """
    lease = f"lease_{secrets.token_hex(8)}"
    spec["resources"] = {"memoryMiB": MEMORY_MIB, **spec.get("resources", {})}
    wanted = launch(runtime._root / "jobs" / lease, command, lease=lease, log_cap=log_cap, data=data, **spec)
    wanted.grant.spec["data"] = list(data or ())
    for name, text in (files or {}).items():
        path = wanted.folder.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    try:
        running = runtime.start(wanted)
    except StartFailed as error:
        wanted.folder.remove()
        return Ran(Outcome("failed", error.code, error.message), b"", False)
    try:
        spool = Spool(wanted.folder.log, log_cap)
        most = spec.get("timeoutSeconds", MOST_SECONDS)
        ran = _to_the_end(running, spool, grace, during, most)
        after(running)
        return ran
    finally:
        running.close()
        wanted.folder.remove()


def _to_the_end(
    running: ContainerRank, spool: Spool, grace: float | None, during: Callable[[Running], object], most: float
) -> Ran:
    started = time.monotonic()
    pump = Pump(running.output, spool)
    try:
        outcome = by_exit(_until_exit(running, spool, grace, during, started + most))
    except Ended as ended:
        running.terminate()
        until = time.monotonic() + ended.grace
        while running.wait(0.02) is None and time.monotonic() < until:
            pass
        outcome = ended.outcome
        running.kill()
        outcome.exit = running.wait(2.0) or outcome.exit
    seconds = time.monotonic() - started
    pump.finish(PUMP_SECONDS)
    spool.close()
    found = _collected(running, outcome)
    results = {file.path: file.source.read_bytes() if file.size <= SHOWN_BYTES else b"" for file in found.files}
    usage, log = running.sample(), Path(spool._file.name).read_bytes()
    left = processes_in(running._id)
    return Ran(outcome, log, spool.truncated, results, found.refused, running.warnings(), usage, seconds, left)


def _until_exit(
    running: Running, spool: Spool, grace: float | None, during: Callable[[Running], object], deadline: float
) -> Any:
    while True:
        exit_ = running.wait(0.05)
        if exit_ is not None:
            return exit_
        during(running)
        breach = running.breach(running.sample())
        if breach is not None:
            raise failed(breach.code, breach.message, 0.2)
        if grace is not None and spool.read(0).startswith(READY):
            raise Ended(Outcome("cancelled", "cancelled", "The job was cancelled."), grace)
        if time.monotonic() >= deadline:
            raise failed("timed_out", "The job ran too long.", 0.2)


def _collected(running: Running, outcome: Outcome) -> Collected:
    try:
        return running.collect(lambda: None)
    except TooManyFiles:
        if outcome.outcome == "succeeded":
            outcome.outcome, outcome.code = "failed", "result_refused"
        return Collected()


def processes_in(container: str) -> list[str]:
    """The names of this machine's processes in a container, by its id."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and container in (folder / "cgroup").read_text():
                found.append((folder / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
