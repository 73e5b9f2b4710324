"""What a container uses, as the kernel counts it: much sooner than the engine, which takes up to a second to say.

Only where this machine runs the container and its processes can be seen; elsewhere the engine is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MICROSECONDS, _NANOSECONDS = 1e6, 1e9


@dataclass(frozen=True)
class Reading:
    """`cpu_seconds` of all processes so far; bytes of memory now, without caches that the kernel can drop.

    `killed` says whether the kernel ended a process for memory.
    """

    cpu_seconds: float
    memory: int
    killed: bool


class Cgroup:
    """The control group of one container: `memory` and `cpu` are its folders, the same in version 2."""

    def __init__(self, memory: Path, cpu: Path) -> None:
        self._memory = memory
        self._cpu = cpu

    @classmethod
    def of(cls, pid: int, container: str) -> Cgroup | None:
        """That of the container's first process, as this machine numbers it; None where it can't be read.

        In another process namespace the number is a stranger's: the group has to name the container.
        """
        parts = [line.split(":", 2) for line in _listed(pid)]
        paths = {kind: path for _number, kinds, path in parts for kind in kinds.split(",")}
        if container not in paths.get("memory", paths.get("", "")):
            return None
        if "memory" in paths:
            found = cls(_ROOT / "memory" / paths["memory"][1:], _ROOT / "cpuacct" / paths.get("cpuacct", "/")[1:])
        else:
            found = cls(_ROOT / paths[""][1:], _ROOT / paths[""][1:])
        return found if found.read() is not None else None

    def read(self) -> Reading | None:
        """None once the container has ended."""
        try:
            return self._second() if (self._memory / "memory.current").exists() else self._first()
        except (OSError, ValueError, KeyError):
            return None

    def limit_sockets(self, most_bytes: int) -> bool:
        """Whether what sockets hold is kept within the memory's limit: version 1 counts it apart, and only when asked.

        The engine can't be asked for it (Docker 20.10 takes KernelMemoryTCP and does nothing); it needs root.
        """
        if (self._memory / "memory.current").exists():
            return True
        try:
            (self._memory / "memory.kmem.tcp.limit_in_bytes").write_text(str(most_bytes), "ascii")
        except OSError:
            return False
        return True

    def _first(self) -> Reading:
        return Reading(
            cpu_seconds=_number(self._cpu / "cpuacct.usage") / _NANOSECONDS,
            memory=_number(self._memory / "memory.usage_in_bytes")
            - _table(self._memory / "memory.stat")["total_inactive_file"],
            killed=_table(self._memory / "memory.oom_control").get("oom_kill", 0) > 0,
        )

    def _second(self) -> Reading:
        return Reading(
            cpu_seconds=_table(self._cpu / "cpu.stat")["usage_usec"] / _MICROSECONDS,
            memory=_number(self._memory / "memory.current") - _table(self._memory / "memory.stat")["inactive_file"],
            killed=_table(self._memory / "memory.events").get("oom_kill", 0) > 0,
        )


def _listed(pid: int) -> list[str]:
    """The groups of a process: number, kinds, and path, a line for each hierarchy."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int:
    return int(path.read_text("ascii"))


def _table(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text("ascii").splitlines())}
