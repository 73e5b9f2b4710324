"""One rank in its container: watched, ended, and its end told exactly."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from docker.errors import NotFound

from mingora_worker.monitor import Usage
from mingora_worker.results import Collected
from mingora_worker.runtimes.base import Exit, Launch, Lost, Reason, over_memory
from mingora_worker.runtimes.docker.attached import Attached, last_words
from mingora_worker.runtimes.docker.cgroup import Cgroup, Reading
from mingora_worker.runtimes.docker.create import create
from mingora_worker.runtimes.docker.engine import (
    ENGINE_FAILURES,
    FAILURES,
    LOST_SECONDS,
    RETRY_SECONDS,
    Engine,
    explanation,
    is_answer,
    lost,
)
from mingora_worker.runtimes.docker.output import Output, OutputFailed
from mingora_worker.runtimes.docker.pipe import PipeOutput
from mingora_worker.runtimes.docker.settings import UNSTARTED, Box, command
from mingora_worker.state import ProcessId
from mingora_worker.texts import _

# Linux's numbers, wherever the worker runs.
TERM, KILL, LAST_SIGNAL = 15, 9, 64
SAMPLE_SECONDS = 1.0
# The kernel's own counts cost little.
KERNEL_SECONDS = 0.05
KILL_SECONDS = 10.0
# The last words come with the end; only a reader that stalls lets them be missed.
WORDS_SECONDS = 2.0
# Nothing but init has anything to say there when the job's output goes into the pipe.
MOST_WORDS = 1 << 20
LATE_SECONDS = 0.5
# A call that waits for the job's end and breaks off later than this was being answered.
ANSWERED_SECONDS = 1.0
_SIGNAL_BASE = 128
_NOT_STARTED = re.compile(rb"\[FATAL tini \(\d+\)\] exec |^exec [^\n]{1,100}: argument list too long", re.MULTILINE)


class ContainerRank:
    """A started container. One thread waits for its end, one looks at what it uses; both outlast a lost connection.

    `left` is called when it couldn't be removed.
    """

    def __init__(self, engine: Engine, launch: Launch, box: Box, output: Output, left: Callable[[], None]) -> None:
        self._engine = engine
        self._id = ""
        self._launch = launch
        self._box = box
        self._output = output
        self._left = left
        self._usage = Usage()
        self._exit: Exit | None = None
        self._ended = threading.Event()
        self._interrupted = False
        self._lost: Lost | None = None
        self._signalled = False
        self._was_full = False
        self._child_killed = False
        self._killed_for_memory = False
        self._unexplained = False
        self._words: Attached | None = None
        self._pipe = None if box.pipe is None else PipeOutput(box.pipe.parent, self._ended.is_set)

    def start(self, image: str) -> None:
        """Creates and starts the container. Raises `Lost` and what the engine answers; `close` clears up."""
        words = command(self._box, self._launch.command)
        self._id = str(self._engine.call(lambda: create(self._engine, image, words, self._box)).id)
        self._words = Attached(self._engine, self._id)
        self._engine.client.api.start(self._id)
        threads = [self._wait, self._look] if self._pipe is None else [self._wait, self._look, self._words.keep]
        for work in threads:
            threading.Thread(target=work, name=f"container {work.__name__}", daemon=True).start()

    @property
    def output(self) -> PipeOutput | Attached:
        """What the job writes."""
        found = self._pipe or self._words
        assert found is not None, "start first"
        return found

    # -- threads -----------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Until the container has ended, or the engine has been away for too long."""
        try:
            self._until_end()
        finally:
            self._ended.set()
            self.output.wake()

    def _until_end(self) -> None:
        away_since: float | None = None
        while self._lost is None:
            began = time.monotonic()
            try:
                self._engine.client.api.wait(self._id, timeout=None)
                self._exit = self._read_exit()
                break
            except FAILURES as error:
                if isinstance(error, NotFound):
                    text = _("The container was removed from outside.")
                    self._exit = Exit(None, KILL, Reason("engine_lost", text))
                    break
                self._interrupted = True
                if away_since is None or time.monotonic() - began > ANSWERED_SECONDS:
                    away_since = time.monotonic()  # it was there until now
                if time.monotonic() - away_since > LOST_SECONDS and not self._engine.answers():
                    self._lost = lost()
                time.sleep(RETRY_SECONDS)

    def _look(self) -> None:
        """Keeps what the container uses, and whether its output is full."""
        cgroup, failing_since, engine_at = self._cgroup(), None, 0.0
        if cgroup is not None:
            cgroup.limit_sockets(self._box.memory_mib << 20)
        pause = KERNEL_SECONDS if cgroup else SAMPLE_SECONDS
        while True:
            try:
                self._was_full = self._was_full or self._output.full()
                reading = None if cgroup is None else cgroup.read()
                if reading is not None:
                    self._usage = _counted(reading, self._usage)
                    self._killed_for_memory = self._killed_for_memory or reading.killed
                if time.monotonic() >= engine_at:  # it has to be heard from in any case
                    engine_at = time.monotonic() + SAMPLE_SECONDS
                    self._ask_engine(told=reading is not None)
                failing_since = None
            except FAILURES:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > LOST_SECONDS and not self._engine.answers():
                    self._lost = self._lost or lost()
            if self._ended.wait(pause):
                return

    def _cgroup(self) -> Cgroup | None:
        """The container's control group, where this machine's kernel keeps it."""
        with contextlib.suppress(*FAILURES):
            pid = int(self._engine.client.api.inspect_container(self._id)["State"]["Pid"])
            return Cgroup.of(pid, self._id) if pid else None
        return None

    def _ask_engine(self, *, told: bool) -> None:
        """What the container uses, unless the kernel has `told` it; raises when the engine doesn't answer."""
        if told:
            self._engine.client.ping()
        else:
            self._usage = _usage(self._engine.client.api.stats(self._id, stream=False, one_shot=True), self._usage)

    # -- how it ended ------------------------------------------------------------------------------------------

    def _read_exit(self) -> Exit:
        assert self._words is not None
        state = self._state()
        tail = self._words.wait(WORDS_SECONDS)
        self._was_full = self._was_full or self._output.full()
        code, signal_number = _told(state["ExitCode"], last_words(tail))
        reason = None
        if self._ran_out(state):
            self._usage = Usage(self._usage.cpu_seconds, self._usage.memory_mib, self._box.memory_mib)
            reason = over_memory(self._box.memory_mib)
            self._child_killed = code == 0
        elif signal_number == KILL and not self._signalled and not self._interrupted:
            self._unexplained = True
        elif self._never_began(code, tail):
            why = {127: _("the image doesn't have it"), 126: _("it can't be executed")}.get(
                code or 0, _("its words are too long")
            )
            text = _("The command {name} can't be started: {reason}")
            reason = Reason("command_not_found", text.format(name=self._launch.command[0], reason=why))
        elif self._was_full:
            reason = self._full()
        elif self._interrupted and signal_number is not None and not self._signalled:
            reason = Reason("engine_lost", _("The container engine was stopped, and the job with it."))
        return Exit(code, signal_number, reason if code != 0 else None)

    def _never_began(self, code: int | None, tail: bytes) -> bool:
        """Whether the shell or init says so; a job whose output isn't in the pipe could say it as well."""
        if self._pipe is None and code not in {126, 127}:
            return False
        return code != 0 and bool(UNSTARTED.encode() in tail or _NOT_STARTED.search(tail))

    def _state(self) -> dict[str, Any]:
        """The container's last state. That memory ran out may be written into it a little after its end."""
        until = time.monotonic() + LATE_SECONDS
        while True:
            state: dict[str, Any] = self._engine.client.api.inspect_container(self._id)["State"]
            unexplained = state["ExitCode"] == _SIGNAL_BASE + KILL and not self._signalled
            if self._ran_out(state) or not unexplained or time.monotonic() > until:
                return state
            time.sleep(LATE_SECONDS / 10)

    def _ran_out(self, state: dict[str, Any]) -> bool:
        """Whether a process was ended for memory, by any of those who may say so."""
        return bool(state.get("OOMKilled")) or self._id in self._engine.out_of_memory or self._killed_for_memory

    def _full(self) -> Reason:
        text = _("The job filled its output: {limit} MiB may be under results/.")
        return Reason("output_limit", text.format(limit=self._box.output_bytes >> 20))

    def warnings(self) -> list[str]:
        found = []
        if self._child_killed:
            text = _("A process of the job was killed for memory; the budget is {limit} MiB.")
            found.append(text.format(limit=self._box.memory_mib))
        if self._was_full and (self._exit is None or self._exit.reason != self._full()):
            found.append(self._full().message)
        if self._unexplained and self._usage.max_memory_mib * 2 >= self._box.memory_mib:
            text = _("The job may have been killed for memory, which engines don't always tell. It has {limit} MiB.")
            found.append(text.format(limit=self._box.memory_mib))
        return found

    # -- Running -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> Exit | None:
        ended = self._ended.wait(timeout)
        if self._lost is not None:
            raise self._lost
        return self._exit if ended else None

    def sample(self) -> Usage:
        return self._usage

    def breach(self, usage: Usage) -> Reason | None:  # noqa: ARG002 (the kernel holds the memory limit)
        if self._output.over():
            return self._full()
        cap = self._launch.grant.log_cap
        flooding = self._pipe is not None and self._words is not None and self._words.passed > MOST_WORDS
        if flooding or self.output.passed > cap:
            text = _("The job wrote more than the {limit} MiB that its log may have.")
            return Reason("log_limit", text.format(limit=cap >> 20))
        return None

    def processes(self) -> list[ProcessId]:
        return []

    def terminate(self) -> None:
        self._signal(TERM)

    def alive(self) -> bool:
        return not self._ended.is_set()

    def kill(self) -> bool:
        """Ends the container; an engine that doesn't answer is left to the next start of the worker."""
        until = time.monotonic() + KILL_SECONDS
        if self._words is not None and not self._ended.is_set():
            self._words.close()
        while not self._ended.is_set() and time.monotonic() < until and self._lost is None:
            self._signal(KILL)
            if not self._ended.wait(1.0):
                self._hurry()
        return self._ended.is_set() and self._lost is None

    def _hurry(self) -> None:
        """A crowd of processes ends slowly within its CPU quota, which isn't needed any more."""
        with contextlib.suppress(*FAILURES):
            self._engine.client.api.update_container(self._id, cpu_quota=-1)

    def _signal(self, number: int) -> None:
        if not self._ended.is_set():
            self._signalled = True
            with contextlib.suppress(*FAILURES):
                self._engine.client.api.kill(self._id, number)

    def collect(self, check: Callable[[], object]) -> Collected:
        if self._lost is not None or not self._ended.is_set():
            raise self._lost or Lost(_("The container could not be ended; its results aren't read."))
        try:
            found = self._output.collect(check)
        except ENGINE_FAILURES as error:
            raise OutputFailed(explanation(error)) if is_answer(error) else lost() from error
        self._was_full = self._was_full or self._output.full()
        return found

    def close(self) -> None:
        if self._id:
            self._remove()
        if self._words is not None:
            self._words.close()
        if self._pipe is not None:
            self._pipe.close()
        self._output.close()

    def _remove(self) -> None:
        self.kill()
        try:
            self._engine.client.api.remove_container(self._id, v=True, force=True)
        except NotFound:
            pass
        except FAILURES:
            self._left()


def _told(exit_code: int, words: tuple[str, str] | None) -> tuple[int | None, int | None]:
    """Exit code and signal of the job's first process, from the container's exit code and what init said.

    Init says nothing when it was killed itself, and an init other than tini never does: a code above 128 means a
    signal then, as in every shell.
    """
    number = exit_code - _SIGNAL_BASE
    by_signal = 0 < number <= LAST_SIGNAL and words != ("status", str(exit_code))
    return (None, number) if by_signal else (exit_code, None)


def _counted(reading: Reading, before: Usage) -> Usage:
    used = -(-max(0, reading.memory) // (1 << 20))
    return Usage(round(max(before.cpu_seconds, reading.cpu_seconds), 2), used, max(before.max_memory_mib, used))


def _usage(stats: dict[str, Any], before: Usage) -> Usage:
    """What the engine counts, caches that the kernel can drop left out. An ended container has nothing any more."""
    memory = stats.get("memory_stats") or {}
    if "usage" not in memory:
        return before
    details = memory.get("stats") or {}
    cache = details.get("total_inactive_file", details.get("inactive_file", 0))
    used = -(-max(0, int(memory["usage"]) - int(cache)) // (1 << 20))
    seconds = (stats.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage", 0) / 1e9
    return Usage(round(max(before.cpu_seconds, seconds), 2), used, max(before.max_memory_mib, used))
