"""What every runtime offers: start one rank of a job, watch it, end it, take what it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mingora.errors import MingoraError
from mingora_worker.api import Grant
from mingora_worker.logs import Output
from mingora_worker.monitor import Usage
from mingora_worker.results import Collected
from mingora_worker.state import JobFolder, ProcessId
from mingora_worker.texts import _


@dataclass(frozen=True)
class Launch:
    """One rank, ready to run: its inputs are in `folder.project`, `mark` is in the environment of its processes.

    `data` and `gpu_index` are what this worker offers; the job's spec says what of it the rank gets.
    """

    grant: Grant
    folder: JobFolder
    mark: str
    data: Mapping[str, Path] = field(default_factory=dict)
    gpu_index: int | None = None

    @property
    def command(self) -> list[str]:
        return [str(part) for part in self.grant.spec["command"]]

    @property
    def memory_mib(self) -> int | None:
        """The job's budget, None when it states none."""
        return self.resources.get("memoryMiB")

    @property
    def resources(self) -> dict[str, Any]:
        return self.grant.spec.get("resources") or {}


@dataclass(frozen=True)
class Reason:
    """Why a rank failed: one of the protocol's codes, and a text for the job's owner."""

    code: str
    message: str


@dataclass(frozen=True)
class Exit:
    """How the first process ended: a code, or the number of the signal that ended it.

    `reason` is why, where the runtime knows better than code and signal tell.
    """

    code: int | None
    signal: int | None
    reason: Reason | None = None


def over_memory(limit_mib: int) -> Reason:
    text = _("The job uses more than its memory budget of {limit} MiB.").format(limit=limit_mib)
    return Reason("memory_exceeded", text)


class StartFailed(MingoraError):
    """The rank can't be started; the message is for the job's owner, `code` one of the protocol's reasons."""

    def __init__(self, message: str, code: str = "command_not_found") -> None:
        super().__init__(message)
        self.code = code


class Lost(MingoraError):
    """What the rank runs in has gone away: nothing can be said of its processes."""


@dataclass(frozen=True)
class Offer:
    """What a worker's runtimes tell the platform at registration."""

    runtimes: tuple[str, ...]
    image_digest: str | None = None
    isolation: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Isolation:
    """The profile in force for one rank, and what its owner has to be warned of. None: no isolation is claimed."""

    profile: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()


class Running(Protocol):
    """A started rank."""

    @property
    def output(self) -> Output: ...

    def wait(self, timeout: float) -> Exit | None:
        """Waits up to `timeout` seconds for the first process to end. Raises `Lost`."""

    def sample(self) -> Usage:
        """What all processes use now."""

    def breach(self, usage: Usage) -> Reason | None:
        """Which limit the job has passed, looked at closely where `usage` gives cause; it has to be ended then."""

    def processes(self) -> list[ProcessId]:
        """What the next start of the worker has to know the job's processes by."""

    def terminate(self) -> None:
        """Asks every process to end."""

    def alive(self) -> bool:
        """Whether any process is left."""

    def kill(self) -> bool:
        """Ends every process at once. Returns whether none is left."""

    def warnings(self) -> list[str]:
        """What the job's owner should know although it didn't end the job; asked for once all is collected."""

    def collect(self, check: Callable[[], object]) -> Collected:
        """What the job left under results/, once nothing of it runs. `check` is called between steps and may raise."""

    def close(self) -> None:
        """Ends and removes all that is left of the rank; what was collected is gone with it."""


class Runtime(Protocol):
    @property
    def name(self) -> str:
        """What `runtime` of job.json calls it."""

    def isolation(self, grant: Grant) -> Isolation:
        """What a rank will run under."""

    def start(self, launch: Launch) -> Running:
        """Raises `StartFailed`, `Lost`."""

    def problem(self, check: Callable[[], object]) -> str | None:
        """Why no job can be run now, in words for people. `check` is called while that is found out, and may raise."""
