"""Every exit code and every deadly signal, from the process to the report."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from launches import launch

from mingora_worker.outcome import by_exit
from mingora_worker.runtimes.base import Exit
from mingora_worker.runtimes.native import NativeRuntime

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX exit statuses and signals")
DEADLY = [number for number in range(1, 32) if number not in {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG,
    signal.SIGWINCH,
}]  # fmt: skip


def run(folder: Path, code: str) -> Exit:
    running = NativeRuntime().start(launch(folder, ["sh", "-c", code]))
    try:
        ended = running.wait(20)
        assert ended is not None
        return ended
    finally:
        running.kill()
        running.output.close()


@pytest.mark.req("JOB-7", "WORK-2")
def test_every_exit_code_is_told_as_it_is(tmp_path: Path) -> None:
    for number in range(256):
        ended = run(tmp_path, f"exit {number}")
        assert ended == Exit(number, None)
        outcome = by_exit(ended)
        assert (outcome.outcome, outcome.code) == (("failed", "exit_code") if number else ("succeeded", None))
        assert not number or str(number) in outcome.message


@pytest.mark.req("JOB-7", "WORK-2")
def test_every_deadly_signal_is_told_as_it_is(tmp_path: Path) -> None:
    for number in DEADLY:
        ended = run(tmp_path, f"ulimit -c 0; kill -{number} $$; sleep 5")
        assert ended == Exit(None, number)
        assert by_exit(ended).code == "signal"
