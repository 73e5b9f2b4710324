"""Runs the worker unpacked: `python mingora_worker.py ...`, with `mingora/` beside it or in ../cli."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python starts this file too
    sys.exit("mingora_worker needs Python 3.10 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031

from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    # The launcher has the package's name: its own folder must come first so that the package wins.
    sys.path[:] = [str(HERE)] + [p for p in sys.path if p not in {"", str(HERE)}]
    if not (HERE / "mingora").is_dir() and (HERE.parent / "cli" / "mingora").is_dir():
        sys.path.insert(1, str(HERE.parent / "cli"))
    try:
        import psutil  # noqa: F401
    except ImportError:
        sys.exit("mingora_worker: psutil is missing. Install it: %s -m pip install psutil" % sys.executable)  # noqa: UP031
    from mingora_worker.__main__ import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
