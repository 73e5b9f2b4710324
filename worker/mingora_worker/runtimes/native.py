"""Runs a job as processes of this account, without a shell (WORK-2)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

import psutil

from mingora_worker.api import Grant
from mingora_worker.environment import native_environment
from mingora_worker.monitor import MARK, ProcessTree, Usage, adopt_orphans
from mingora_worker.results import FOLDER, Collected, collect
from mingora_worker.runtimes import windows_job
from mingora_worker.runtimes.base import Exit, Isolation, Launch, Reason, StartFailed, over_memory
from mingora_worker.state import ProcessId
from mingora_worker.texts import _

NICE = 5
CREATE_SUSPENDED = 0x4
PYTHONS = frozenset({"python", "python3"})


class NativeRuntime:
    """Starts commands in a session of their own, a little below the worker's priority.

    `python` and `python3` mean the interpreter that runs the worker, whose packages the fingerprint states.
    """

    name = "native"

    def __init__(self) -> None:
        self._adopting = adopt_orphans()

    def isolation(self, grant: Grant) -> Isolation:  # noqa: ARG002 (a native job has all rights of the account)
        return Isolation()

    def problem(self, check: Callable[[], object]) -> str | None:  # noqa: ARG002
        return None

    def start(self, launch: Launch) -> NativeProcess:
        tree = ProcessTree(launch.mark, adopting=self._adopting)
        command, project = launch.command, launch.folder.project
        if command[0] in PYTHONS:
            command[0] = sys.executable
        elif sys.platform == "win32" and (project / command[0]).is_file():
            command[0] = str(project / command[0])
        try:
            return self._spawn(command, launch, tree)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StartFailed(
                _("The command {name} can't be started: {reason}").format(name=launch.command[0], reason=reason)
            ) from error

    def _spawn(self, command: list[str], launch: Launch, tree: ProcessTree) -> NativeProcess:
        project = launch.folder.project
        if not project.is_dir():
            raise ValueError(_("the project folder is gone"))
        (project / FOLDER).mkdir(exist_ok=True)
        flags = 0
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.BELOW_NORMAL_PRIORITY_CLASS | CREATE_SUSPENDED
        process = subprocess.Popen(
            command,
            cwd=project,
            env={**native_environment(launch), MARK: launch.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            creationflags=flags,
        )
        if sys.platform == "win32":
            return NativeProcess(process, tree, launch, _contained(process))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        return NativeProcess(process, tree, launch)


def _contained(process: subprocess.Popen[bytes]) -> Callable[[], None]:
    """Puts a suspended process into a Job Object and lets it run; returns what ends all that is in it."""
    job = windows_job.JobObject()  # type: ignore[attr-defined, unused-ignore]
    try:
        job.add(int(process._handle))  # type: ignore[attr-defined, unused-ignore]
        psutil.Process(process.pid).resume()
    except (OSError, psutil.Error) as error:
        process.kill()
        raise OSError(str(error)) from error
    return job.close  # type: ignore[no-any-return, unused-ignore]


class NativeProcess:
    """A running command and everything it started. `end_container` ends what the system keeps together, if it does."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        tree: ProcessTree,
        launch: Launch,
        end_container: Callable[[], None] = lambda: None,
    ) -> None:
        assert process.stdout is not None
        self.output: BinaryIO = process.stdout  # type: ignore[assignment]
        self._launch = launch
        self._process = process
        self._tree = tree
        self._end_container = end_container
        tree.start(process.pid)
        self._ended = threading.Event()
        # A thread waits, so that the end is seen at once and no number is reused before it.
        threading.Thread(target=self._wait, name="wait", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        if sys.platform == "win32":
            self._process.wait()
        else:
            # Nobody else takes this status, and with it comes what the process used, however short it lived.
            _pid, status, used = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._tree.ended(used.ru_maxrss)
        self._ended.set()

    def wait(self, timeout: float) -> Exit | None:
        if not self._ended.wait(timeout):
            return None
        code = self._process.returncode
        return Exit(None, -code) if code < 0 else Exit(code, None)

    def sample(self) -> Usage:
        self._tree.reap()
        return self._tree.sample()

    def breach(self, usage: Usage) -> Reason | None:
        limit = self._launch.memory_mib
        if limit is None or usage.memory_mib <= limit or self._tree.shared_once() <= limit:
            return None
        return over_memory(limit)

    def processes(self) -> list[ProcessId]:
        return self._tree.identities()

    def terminate(self) -> None:
        self._tree.terminate()

    def alive(self) -> bool:
        self._tree.reap()
        return bool(self._tree.members())

    def kill(self) -> bool:
        self._end_container()
        return self._tree.kill()

    def warnings(self) -> list[str]:
        return []

    def collect(self, check: Callable[[], object]) -> Collected:
        return collect(self._launch.folder.project, check=check)

    def close(self) -> None:
        self.kill()
