"""The command line of dev.py: reads the words and hands over to the command's module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

PASSED_ON = frozenset({"up", "test"})
"""Commands whose further words belong to another program, its options and `--help` among them."""


def main(words: Sequence[str]) -> int:
    """Run one command; its module is imported only then. Returns the exit code."""
    options = parse(words)
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


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The words as options; `arguments` is what goes to another program, untouched."""
    parser = argparse.ArgumentParser(
        prog="dev.py", description="Try Mingora, run it, test it, check it, measure it, pack its tools."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("demo", help="run one job from login to verified results, then stop everything")
    commands.add_parser("up", help="start the platform on this machine and keep it running: up --data DIR")
    commands.add_parser("test", help="run all tests; further words go to pytest")
    check = commands.add_parser("check", help="lint, types, import rules, message catalogues, generated documents")
    check.add_argument("--fix", action="store_true", help="mend what can be mended by itself")
    bench = commands.add_parser("bench", help="measure, each figure beside a comparator of the same run")
    bench.add_argument("name", nargs="?", help="one benchmark; without it, all")
    bench.add_argument("--json", action="store_true", help="one JSON object on stdout")
    commands.add_parser("zip", help="pack the tools that run unpacked, into dist/")
    # argparse.REMAINDER would not do: it refuses an option as the first of the remaining words.
    if words and words[0] in PASSED_ON:
        return argparse.Namespace(command=words[0], arguments=list(words[1:]))
    return parser.parse_args(words)
