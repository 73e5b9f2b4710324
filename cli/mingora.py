#!/usr/bin/env python3
"""Runs the command line from an unpacked folder: `python mingora.py ...` (CLI-1)."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python starts this file too
    sys.exit("Mingora needs Python 3.10 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031

from pathlib import Path

# Python lists this file's folder first by itself, but not when it runs with -I or -P. In that folder the package
# `mingora` wins over this file of the same name.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from mingora.__main__ import run

if __name__ == "__main__":
    run()
