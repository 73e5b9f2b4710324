"""``python -m mingora_coordinator``, and what the installed command ``mingora-coordinator`` calls."""

from __future__ import annotations

import sys


def run() -> None:
    """The console script."""
    try:
        from mingora_coordinator.cli import main  # an interruption while it loads is an interruption, not a traceback

        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()
