#!/usr/bin/env python3
"""The one entry for people: try Mingora, run it, test it, check it, measure it, pack its tools.

Needs Python 3.11 or newer with venv and pip; everything else goes into `.venv` beside this file.
"""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Parse the command line and hand over to the command's module."""
    if sys.version_info < (3, 11):
        print("dev.py needs Python 3.11 or newer. Try python3.11 dev.py, or python3.12 dev.py.", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("demo", help="run one job from login to verified results, then stop everything")
    up = commands.add_parser("up", help="start the platform on this machine and keep it running")
    up.add_argument("arguments", nargs=argparse.REMAINDER, help="--data DIR --port N --host NAME, see mingora-stack up")
    test = commands.add_parser("test", help="run all tests; further words go to pytest")
    test.add_argument("arguments", nargs=argparse.REMAINDER)
    check = commands.add_parser("check", help="lint, types, import rules, message catalogues, generated documents")
    check.add_argument("--fix", action="store_true", help="mend what can be mended by itself")
    bench = commands.add_parser("bench", help="measure, each figure beside a comparator of the same run")
    bench.add_argument("name", nargs="?", help="one benchmark; without it, all")
    bench.add_argument("--json", action="store_true", help="one JSON object on stdout")
    commands.add_parser("zip", help="pack the tools that run unpacked, into dist/")
    options = parser.parse_args()
    try:
        return run(options)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Run one command; its module is imported only now."""
    if options.command == "demo":
        from devtools import demo

        return demo.run()
    if options.command == "up":
        from devtools import venv

        return venv.replace_by("services", "-m", "mingora_stack.cli", "up", *options.arguments)
    if options.command == "test":
        from devtools import testing

        return testing.run(options.arguments)
    if options.command == "check":
        from devtools import check

        return check.run(fix=options.fix)
    if options.command == "bench":
        from devtools import venv

        arguments = [*([options.name] if options.name else []), *(["--json"] if options.json else [])]
        return venv.call("dev", "-m", "bench", *arguments)
    from devtools import pack

    print(pack.build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
