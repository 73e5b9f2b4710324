"""Which kind of output this machine allows, and what a killed worker left of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mingora_worker.runtimes.docker.output import Output, OutputFailed, Place
from mingora_worker.runtimes.docker.output_loop import LoopOutput, mounts_below, run
from mingora_worker.runtimes.docker.output_tmpfs import TmpfsOutput
from mingora_worker.runtimes.docker.output_watchdog import WatchdogOutput

_KINDS: tuple[type[LoopOutput] | type[TmpfsOutput] | type[WatchdogOutput], ...] = (
    LoopOutput,
    TmpfsOutput,
    WatchdogOutput,
)


@dataclass(frozen=True)
class Choice:
    """`make` makes an output of `kind`; `passed_over`: each better kind, and why this machine doesn't allow it."""

    kind: str
    make: Callable[[Place], Output]
    passed_over: dict[str, str]


def best(place: Place) -> Choice:
    """The best kind that works here, tried with an output in `place`. Raises `OutputFailed` where none does.

    Whether the engine sees a loop output's mount is not known yet: a container has to show it.
    """
    passed_over: dict[str, str] = {}
    for kind in _KINDS:
        try:
            kind(place).close()
        except (OutputFailed, OSError) as error:
            passed_over[kind.kind] = str(error)
        else:
            return Choice(kind.kind, kind, passed_over)
    raise OutputFailed("; ".join(f"{kind}: {why}" for kind, why in passed_over.items()))


def clear(folder: Path) -> None:
    """Takes away the mounts below a folder, before it is removed. Raises `OutputFailed` where one resists."""
    for point in mounts_below(folder):
        run("umount", "-l", str(point))
