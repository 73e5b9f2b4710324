"""The kinds of output, and what a killed worker left of one."""

from __future__ import annotations

from pathlib import Path

from mingora_worker.runtimes.docker.output_loop import LoopOutput, mounts_below, run
from mingora_worker.runtimes.docker.output_tmpfs import TmpfsOutput
from mingora_worker.runtimes.docker.output_watchdog import WatchdogOutput

Kind = type[LoopOutput] | type[TmpfsOutput] | type[WatchdogOutput]
# The best first. Which of them a machine allows is found by making one, and whether the engine sees it by using it.
KINDS: tuple[Kind, ...] = (LoopOutput, TmpfsOutput, WatchdogOutput)


def clear(folder: Path) -> None:
    """Takes away the mounts below a folder, before it is removed. Raises `OutputFailed` where one resists."""
    for point in mounts_below(folder):
        run("umount", "-l", str(point))
