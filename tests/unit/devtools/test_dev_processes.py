"""devtools.processes: what it starts never outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from devtools.processes import INTERRUPTING, Processes


@pytest.mark.parametrize("number", INTERRUPTING)
def test_every_way_to_interrupt_ends_the_children(number: int) -> None:
    children: list[subprocess.Popen[str]] = []
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), Processes() as processes:
        children.append(processes.start(sys.executable, "-S", "-c", "import time; time.sleep(60)"))
        signal.raise_signal(number)
    assert [child.returncode for child in children] == [-signal.SIGTERM]
    assert signal.getsignal(number) == before


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP on this system")
def test_a_closed_terminal_interrupts() -> None:
    assert signal.SIGHUP in INTERRUPTING
