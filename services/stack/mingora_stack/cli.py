"""The command line ``mingora-stack``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

DEFAULT_PORT = 8765


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = argparse.ArgumentParser(prog="mingora-stack", description="All of Mingora on one machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up_parser = commands.add_parser("up", help="start everything and keep it running until Ctrl-C or SIGTERM")
    up_parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the folder that keeps everything")
    up_parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="default %(default)s; 0 picks a free one")
    up_parser.add_argument(
        "--host", metavar="NAME", help="serve other machines too, by HTTPS under this name or IP address"
    )
    up_parser.add_argument("--json", action="store_true", help="when ready, print one line of JSON: url, caFile")
    up_parser.add_argument("--verbose", action="store_true", help="show what the processes log")
    options = parser.parse_args(arguments)
    if os.name != "posix":
        print("mingora-stack runs on Linux and macOS.", file=sys.stderr)
        return 1
    from mingora_common import logs
    from mingora_stack.errors import StackError

    logs.configure("stack")  # to stderr: with --json a program reads stdout
    try:
        from mingora_stack.up import Options, up

        up(Options(options.data, options.port, options.host, options.json, options.verbose))
    except StackError as error:
        print(f"mingora-stack: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a working folder that is gone
        print(f"mingora-stack: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the stack took the signal over, so nothing has been started
        return 130
    return 0


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is between 0 and 65535")
    return port


if __name__ == "__main__":
    sys.exit(run())
