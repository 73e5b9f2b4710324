"""Keeps the stack's processes running: starts them, restarts what died, and stops them in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from mingora_stack import launch

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 10.0
STEADY_SECONDS = 30.0  # a process that has run this long is taken as healthy again
STOP_SECONDS = 5.0
TRIES = 8  # how often in a row a program may end by itself, which takes half a minute, before nobody tries any more


class Backoff:
    """How long to wait before a process that died is started again: doubling, until one has run steadily."""

    def __init__(self) -> None:
        self.failures = 0

    def delay(self, lived: float) -> float:
        """Seconds to wait after a process that lived for ``lived`` seconds."""
        self.failures = 1 if lived >= STEADY_SECONDS else self.failures + 1
        return min(FIRST_DELAY_SECONDS * 2.0 ** (min(self.failures, 20) - 1), LONGEST_DELAY_SECONDS)


@dataclass(frozen=True)
class Program:
    """What to run under which name; ``descriptors`` are the listening sockets it inherits."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    descriptors: tuple[int, ...] = ()


@dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes]
    started: float
    backoff: Backoff = field(default_factory=Backoff)
    restart_at: float | None = None
    own_ends: int = 0


class Supervisor:
    """Runs programs as children of the main thread (the kernel ties their lives to the thread that started them).

    Args:
        follow: takes a child's output, by its name.
        report: tells what happened, in one line.
    """

    def __init__(self, follow: Callable[[str, BinaryIO], object], report: Callable[[str], None]) -> None:
        self._follow = follow
        self._report = report
        self._children: list[_Child] = []

    def start(self, program: Program) -> None:
        """Start a program and keep it running from now on. What others lean on is started first."""
        self._children.append(_Child(program, self._spawn(program), time.monotonic()))

    def step(self) -> float | None:
        """Restart what is due; seconds until the next restart is, or None while all run."""
        now = time.monotonic()
        for child in self._children:
            if child.restart_at is None and child.process.poll() is not None:
                if child.process.returncode >= 0:  # whom somebody kills may be well
                    child.own_ends = 1 if now - child.started >= STEADY_SECONDS else child.own_ends + 1
                self._put_off(child, now, _how_it_ended(child.process.returncode))
            if child.restart_at is not None and child.restart_at <= now:
                try:
                    child.process = self._spawn(child.program)
                    child.started, child.restart_at = now, None
                except OSError as error:  # the machine is out of processes, memory or descriptors: it may pass
                    self._put_off(child, now, f"can't be started: {error.strerror}")
        due = [child.restart_at for child in self._children if child.restart_at is not None]
        return max(0.0, min(due) - now) if due else None

    def failures(self, name: str) -> int:
        """How often a program has died since it last ran steadily."""
        return next(child.backoff.failures for child in self._children if child.program.name == name)

    def hopeless(self) -> str | None:
        """The program that ends by itself time and again, if one does: trying once more won't mend it."""
        return next((child.program.name for child in self._children if child.own_ends >= TRIES), None)

    def stop(self) -> None:
        """Stop everything, what was started first last; what doesn't stop in time is killed."""
        first, rest = self._children[:1], self._children[1:]
        for group in (rest, first):
            for child in group:
                _signal(child.process, signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for child in group:
                _wait(child.process, max(0.0, deadline - time.monotonic()))
        self._children.clear()

    def _put_off(self, child: _Child, now: float, what: str) -> None:
        delay = child.backoff.delay(now - child.started)
        child.restart_at = now + delay
        self._report(f"{child.program.name} {what}; it starts again in {delay:.1f} s.")

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C at the terminal reaches the supervisor alone, which stops them in order.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid()), *program.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(program.environ),
            pass_fds=program.descriptors,
            start_new_session=True,
        )
        self._follow(program.name, cast(BinaryIO, process.stdout))
        return process


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
