"""Child processes that never outlive us: whatever interrupts, all of them are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

TERM_SECONDS = 10
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))


class Processes:
    """Starts children in sessions of their own and ends them, last first, when the block ends.

    Ctrl-C, SIGTERM and a terminal that closes become KeyboardInterrupt, but never between the start of a child and the
    moment we know it, and never while children are being ended.
    """

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []
        self._held = 0
        self._pending = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Processes:
        for number in INTERRUPTING:
            self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._held += 1  # from here on interruptions only wait
        for child in reversed(self._children):
            self._end(child)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Start ``command`` (text mode, nothing on its stdin)."""
        with self._hold():
            child = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, start_new_session=True, **options)
            self._children.append(child)
        return child

    def run(self, *command: str, stdin: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``command`` to its end and give back its output and exit code."""
        with self._hold():
            child = subprocess.Popen(
                command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **options
            )
            self._children.append(child)
        output, _ = child.communicate(stdin)
        self._children.remove(child)
        return subprocess.CompletedProcess(command, child.returncode, output)

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._pending and not self._held:
            raise KeyboardInterrupt

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._pending = True
        if not self._held:
            raise KeyboardInterrupt

    @staticmethod
    def _end(child: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            child.wait(TERM_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
