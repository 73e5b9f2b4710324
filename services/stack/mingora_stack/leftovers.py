"""Ends the processes that a stack left behind when it was killed.

They are known by the mark in their environment, which only descendants of a stack on the same data folder have; a
process id alone says nothing, for the system gives it to others later.
"""

from __future__ import annotations

import os

import psutil

MARK = "MINGORA_STACK_MARK"
GRACE_SECONDS = 2.0
ROUNDS = 5


def marked(mark: str) -> list[psutil.Process]:
    """This user's processes, apart from this one, whose environment carries ``mark``."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid != os.getpid() and process.uids().real == os.getuid()
            if ours and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue  # it is gone, or it isn't ours to look at
    return found


def end(mark: str) -> int:
    """End what is marked, children that appear meanwhile included; how many processes there were.

    psutil compares a process's start time before each signal, so a process id that was given anew is safe.
    """
    ended = 0
    for _ in range(ROUNDS):
        processes = marked(mark)
        if not processes:
            break
        ended += len(processes)
        _signal(processes, "terminate")
        _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
        _signal(alive, "kill")
        psutil.wait_procs(alive, timeout=GRACE_SECONDS)
    return ended


def _signal(processes: list[psutil.Process], method: str) -> None:
    for process in processes:
        try:
            getattr(process, method)()
        except psutil.NoSuchProcess:
            continue
