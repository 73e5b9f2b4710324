#!/usr/bin/env python3
"""Runs the command line from an unpacked folder: `python mingora.py ...` (CLI-1)."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python starts this file too
    sys.exit("Mingora needs Python 3.10 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031

from pathlib import Path  # noqa: E402

# The file's own name would hide the package of that name: Python puts its folder first, where both lie, and a
# package wins over a module there; the folder is named again for runs with -I or -P, which leave it out.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from mingora.cli import run

if __name__ == "__main__":
    run()
