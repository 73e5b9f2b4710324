"""Starts one program so that it can't outlive the process that supervises it.

Run as a script: ``python -I -S launch.py SUPERVISOR_PID PROGRAM [ARGUMENT …]``. It imports nothing of the project, so
that it costs a few milliseconds only.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` (its parent's process id) dies. Linux only; elsewhere the next
    start of the stack ends what was left behind."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        os._exit(1)


def main(arguments: list[str]) -> None:
    """Become the named program, with no signal blocked."""
    die_with_parent(int(arguments[0]))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
