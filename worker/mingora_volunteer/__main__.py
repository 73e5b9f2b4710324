"""The start of `mingora-volunteer` and `python -m mingora_volunteer`: Ctrl-C while it is being loaded ends it."""

import sys


def run() -> int:
    try:
        from mingora_volunteer.cli import run as program

        return program()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
