"""What every runtime offers: start one rank of a job, watch it, end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from mingora.errors import MingoraError
from mingora_worker.monitor import Usage
from mingora_worker.state import ProcessId


@dataclass(frozen=True)
class Launch:
    """One rank, ready to run: `env` is the whole environment, `mark` the marker in it."""

    command: Sequence[str]
    folder: Path
    env: Mapping[str, str]
    mark: str


@dataclass(frozen=True)
class Exit:
    """How the first process ended: a code, or the number of the signal that ended it."""

    code: int | None
    signal: int | None


class StartFailed(MingoraError):
    """The command can't be started; the message is for the job's owner."""


class Running(Protocol):
    """A started rank."""

    output: BinaryIO

    def wait(self, timeout: float) -> Exit | None:
        """Waits up to `timeout` seconds for the first process to end."""

    def sample(self) -> Usage:
        """What all processes use now."""

    def over_memory(self, limit_mib: int, usage: Usage) -> bool:
        """Whether the job is over its memory budget, looked at closely when `usage` says so."""

    def processes(self) -> list[ProcessId]: ...

    def terminate(self) -> None:
        """Asks every process to end."""

    def alive(self) -> bool:
        """Whether any process is left."""

    def kill(self) -> bool:
        """Ends every process at once. Returns whether none is left."""


class Runtime(Protocol):
    def start(self, launch: Launch) -> Running:
        """Raises `StartFailed`."""
