"""Jobs that try to leave, overfill or outlive their container, each with the end that it has to come to."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import docker_runtime
from docker_runtime import Ran

from mingora_worker.runtimes.docker.runtime import DockerRuntime

SUCCEEDED = ("succeeded", 0, None)
FULL = f"The job filled its output: {docker_runtime.OUTPUT_BYTES >> 20} MiB may be under results/."
MAIN = "main.py"


def exits(code: int) -> tuple[str, int | None, int | None]:
    return "exit_code", code, None


def killed(number: int, why: str = "signal") -> tuple[str, int | None, int | None]:
    return why, None, number


@dataclass(frozen=True)
class Job:
    """`code` is Python. `says` is a pattern of all that it prints; `kept` all its results, or their number.

    `grace`: it is cancelled once it is ready, and may take so many seconds for its end. `most`: seconds from its start
    to its end, on a busy machine.
    """

    name: str
    code: str
    end: tuple[str, int | None, int | None] = SUCCEEDED
    says: str = ""
    kept: Mapping[str, bytes] | int = field(default_factory=dict)
    refused: Sequence[str] = ()
    warnings: Sequence[str] = ()
    grace: float | None = None
    log_cap: int = docker_runtime.LOG_CAP
    most: float = 10.0
    spec: Mapping[str, Any] = field(default_factory=dict)

    def run(self, runtime: DockerRuntime, **more: Any) -> Ran:
        files = {MAIN: textwrap.dedent(self.code)}
        options: dict[str, Any] = {"grace": self.grace, "log_cap": self.log_cap, **self.spec, **more}
        return docker_runtime.run(runtime, ["python3", MAIN], files=files, **options)

    def run_until_told(self, runtime: DockerRuntime) -> Ran:
        """Runs it again where a kill for memory wasn't told: Docker 20.10 doesn't in one of 90 (docs/security.md)."""
        ran = self.run(runtime)
        of_itself = self.end[0] == "memory_exceeded" and ran.end == ("signal", None, 9)
        of_a_child = bool(self.warnings) and not ran.warnings
        return self.run(runtime) if of_itself or of_a_child else ran

    def check(self, ran: Ran) -> None:
        """Fails where anything came of it that wasn't to come."""
        assert ran.end == self.end, (ran.end, ran.outcome.message, ran.text[-2000:])
        assert re.fullmatch(self.says, ran.text, re.DOTALL), ran.text[-2000:]
        kept = len(ran.results) if isinstance(self.kept, int) else ran.results
        assert kept == self.kept
        assert list(ran.refused) == list(self.refused)
        assert list(ran.warnings) == list(self.warnings)
        assert ran.seconds <= self.most
        assert ran.left == []


def with_memory(mib: int) -> dict[str, Any]:
    return {"resources": {"memoryMiB": mib}}
