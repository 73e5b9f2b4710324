"""Runs the worker unpacked: `python mingora_worker.py …`, with `mingora/` beside it or in ../cli."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    # The launcher has the package's name: its own folder must come first so that the package wins.
    sys.path[:] = [str(HERE), *(p for p in sys.path if p not in {"", str(HERE)})]
    if not (HERE / "mingora").is_dir() and (HERE.parent / "cli" / "mingora").is_dir():
        sys.path.insert(1, str(HERE.parent / "cli"))
    try:
        import psutil  # noqa: F401
    except ImportError:
        print(f"mingora_worker: psutil is missing. Install it: {sys.executable} -m pip install psutil", file=sys.stderr)
        return 1
    from mingora_worker.cli import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
