"""The processes of one job: who they are, what they use, and how all of them end (WORK-4).

A job's processes are told by descent, by identity (number and start time), and by the marker in their environment,
never by a number alone. On Linux the worker adopts orphans (PR_SET_CHILD_SUBREAPER), so a daemon that forked twice
and left its group still descends from it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from mingora_worker.state import ProcessId

MARK = "MINGORA_LEASE_MARK"
KILL_SECONDS = 10.0
# psutil derives start times from the boot time, which moves a little when the clock is set.
SAME_START_SECONDS = 2.0
_MIB = 1024 * 1024
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError)


@dataclass(frozen=True)
class Usage:
    """What a job used so far. Seconds of CPU time over all its processes, memory in MiB."""

    cpu_seconds: float = 0.0
    memory_mib: int = 0
    max_memory_mib: int = 0


def adopt_orphans() -> bool:
    """Makes this process the parent of its descendants' orphans. Linux only; elsewhere False."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    pr_set_child_subreaper = 36
    try:
        return bool(ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class ProcessTree:
    """The processes of one running job.

    Make it before the first process starts: descendants that this worker already has aren't the job's. `adopting`
    says whether orphans come back to this process.
    """

    def __init__(self, mark: str, *, adopting: bool) -> None:
        self._mark = mark
        self._adopting = adopting
        self._worker = psutil.Process()
        self._before = set(_children(self._worker)) if adopting else set()
        self._root: psutil.Process | None = None
        self._known: set[psutil.Process] = set()
        self._reaped_before = _reaped_cpu()
        self._own_peak = _peak_bytes()
        self._cpu = 0.0
        self._max_bytes = 0

    def start(self, pid: int) -> None:
        """Names the job's first process, which someone else waits for."""
        with contextlib.suppress(*_GONE):
            self._root = psutil.Process(pid)
            self._known.add(self._root)

    def ended(self, max_rss: int) -> None:
        """The first process has ended. `max_rss`: its peak as the system counts it, or that of a child it waited for.

        It is the least that the job had, and all that is known of one too short to be looked at. What isn't above
        this worker's own peak says nothing: between fork and exec the process counts as large as the worker.
        """
        peak = max_rss * _RSS_UNIT
        self._max_bytes = max(self._max_bytes, peak if peak > self._own_peak else 1)

    def members(self, *, by_mark: bool = False) -> list[psutil.Process]:
        """The job's live processes. `by_mark` also looks at every process's environment, which takes longer."""
        found: list[psutil.Process] = []
        if self._adopting:
            found += _children(self._worker)
        else:
            for process in self._known:
                found += _children(process)
        if by_mark:
            found += marked(self._mark)
        self._known |= set(found) - self._before - {self._worker}
        self._known = {process for process in self._known if process.is_running()}
        return [process for process in self._known if _alive(process)]

    def identities(self) -> list[ProcessId]:
        """What the next start needs to know the job's processes again."""
        return [ProcessId(pid, created) for pid, created in sorted(_identity(process) for process in self._known)]

    def sample(self) -> Usage:
        """Looks at the processes now.

        Memory is the sum of resident sets; pages that processes share are counted once for each. `shared_once`
        tells better, and is too slow for every second.
        """
        reaped = _reaped_cpu() - self._reaped_before
        members = self.members()
        cpu, resident = reaped, 0
        for process in self._known:
            with contextlib.suppress(*_GONE):
                times = process.cpu_times()
                cpu += times.user + times.system
                cpu += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        for process in members:
            with contextlib.suppress(*_GONE):
                resident += process.memory_info().rss
        self._cpu = max(self._cpu, cpu)
        self._max_bytes = max(self._max_bytes, resident)
        return Usage(round(self._cpu, 2), -(-resident // _MIB), -(-self._max_bytes // _MIB))

    def shared_once(self) -> int:
        """MiB in use with shared pages counted once (PSS, Linux), or the sum of resident sets elsewhere."""
        total = 0
        for process in self.members():
            with contextlib.suppress(*_GONE):
                full = process.memory_full_info()
                total += getattr(full, "pss", 0) or full.rss
        return -(-total // _MIB)

    def terminate(self) -> None:
        """Asks every process to end; a stopped one is woken so that it can."""
        for process in self.members(by_mark=True):
            with contextlib.suppress(*_GONE):
                process.terminate()
                if sys.platform != "win32":
                    process.send_signal(signal.SIGCONT)

    def reap(self) -> None:
        """Takes the exit statuses of adopted orphans; the first process is waited for elsewhere."""
        if not self._adopting or sys.platform == "win32":
            return
        for process in _children(self._worker, recursive=False):
            if process in self._before or process == self._root:
                continue
            with contextlib.suppress(*_GONE):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)

    def kill(self) -> bool:
        """Ends every process at once, those included that start meanwhile. Returns whether none is left."""
        ended = self._kill_adopted() if self._adopting else True
        return kill_all(lambda: self.members(by_mark=True), self.reap) and ended

    def _kill_adopted(self) -> bool:
        """Kills this worker's children, and theirs as they become its own, until it has none, not even a zombie.

        Only then nothing can be left: a process that forks and ends at once, over and over, is gone whenever the list
        of all processes has been read. The first process is left to the one who waits for it; no other number can be
        taken by a stranger, because nobody else takes exit statuses.
        """
        spared = {process.pid for process in self._before} | ({self._root.pid} if self._root is not None else set())
        with contextlib.suppress(*_GONE):
            if self._root is not None:
                self._root.kill()
        until = time.monotonic() + KILL_SECONDS
        while children := _child_numbers(self._worker) - spared:
            for pid in children:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True


def kill_all(find: Callable[[], Iterable[psutil.Process]], reap: Callable[[], None] | None = None) -> bool:
    """Kills what `find` finds until it finds nothing, for `KILL_SECONDS` at most."""
    until = time.monotonic() + KILL_SECONDS
    while processes := list(find()):
        for process in processes:
            with contextlib.suppress(*_GONE):
                process.kill()
        if reap is not None:
            reap()
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    if reap is not None:
        reap()
    return True


def leftovers(mark: str, processes: Iterable[ProcessId]) -> list[psutil.Process]:
    """The live processes of a job that a former worker left, with their descendants."""
    found = set(marked(mark))
    for known in processes:
        with contextlib.suppress(*_GONE):
            process = psutil.Process(known.pid)
            if abs(process.create_time() - known.created) <= SAME_START_SECONDS:
                found.add(process)
    for process in list(found):
        found.update(_children(process))
    return [p for p in found if p.pid != os.getpid() and _alive(p)]


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this account whose environment has the marker. An empty marker marks nothing."""
    found: list[psutil.Process] = []
    if not mark:
        return found
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _identity(process: psutil.Process) -> tuple[int, float]:
    """Number and start as the clock says: for a later start of the worker. Here, `Process` itself compares better."""
    try:
        return process.pid, process.create_time()
    except _GONE:
        return process.pid, 0.0


def _children(process: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    try:
        # Looked up anew: psutil holds when a parent started, kept from before the clock was set, against its children.
        parent = psutil.Process(process.pid)
        return parent.children(recursive=recursive) if parent == process else []
    except _GONE:
        return []


def _child_numbers(process: psutil.Process) -> set[int]:
    """Numbers of a process's direct children, zombies included; quick where Linux has the list."""
    try:
        lists = [Path(task, "children").read_bytes() for task in Path("/proc", str(process.pid), "task").iterdir()]
    except OSError:
        return {child.pid for child in _children(process, recursive=False)}
    return {int(number) for line in lists for number in line.split()}


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except _GONE:
        return False


def _reaped_cpu() -> float:
    """CPU seconds of all processes whose exit status this process has taken, their reaped children included."""
    if sys.platform == "win32":
        return 0.0
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _peak_bytes() -> int:
    """The most memory that this process had at a time.

    Linux counts what the process was before its exec to its `ru_maxrss`: a small worker that a large program started
    would seem large. VmHWM is of this program alone.
    """
    if sys.platform == "win32":
        return 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
