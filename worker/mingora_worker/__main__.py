"""The start of `mingora-worker` and `python -m mingora_worker`: Ctrl-C while it is being loaded ends it."""

import sys


def run() -> int:
    try:
        from mingora_worker.cli import run as program

        return program()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
