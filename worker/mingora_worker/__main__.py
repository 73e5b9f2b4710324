"""Runs the worker as `python -m mingora_worker`."""

import sys

from mingora_worker.cli import run

if __name__ == "__main__":
    sys.exit(run())
