"""`dev.py test`: the whole suite, with the engines it needs."""

from __future__ import annotations

import os
import sys

from devtools import engines, venv


def run(arguments: list[str]) -> int:
    """Run pytest over everything, or with the words given; returns its exit code.

    Unit tests run first and alone fail fast; with CI=true a missing engine fails the tests that need it.
    """
    try:
        venv.ensure("dev")
    except venv.SetupError as error:
        print(error, file=sys.stderr)
        return 1
    engines.install()
    with engines.postgres() as url, engines.docker() as containers:
        env = {} if url is None else {"MINGORA_TEST_POSTGRES": url}
        env |= {"MINGORA_TEST_DOCKER": "1"} if containers else {}
        if url is None:
            print("No PostgreSQL was found: the tests that need it are skipped.", file=sys.stderr)
        if not containers:
            print("No Docker Engine with compose was found: the tests that need it are skipped.", file=sys.stderr)
        workers = str(max(2, min(4, os.cpu_count() or 2)))
        words = arguments or ["-n", workers, "--dist", "loadgroup", "-q"]
        return venv.call("dev", "-m", "pytest", *words, env=env)
