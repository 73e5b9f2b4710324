"""The start of `mingora-admin`: Ctrl-C while it is being loaded ends it as it does later."""

import sys


def run() -> int:
    try:
        from mingora_stack.admin.cli import run as program

        return program()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
