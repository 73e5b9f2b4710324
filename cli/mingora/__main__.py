"""The program's start, as `mingora` and as `python -m mingora`: Ctrl-C while it is being loaded is met as later."""

import sys


def run() -> None:
    try:
        from mingora.cli import run as program

        program()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
