"""Ctrl-C while a program is still being loaded: no traceback, and the exit code of an interruption."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[3]
PROGRAMS = {
    "mingora": "cli",
    "mingora-worker": "worker",
    "mingora-volunteer": "worker",
    "mingora-admin": "services",
    "mingora-coordinator": "services",
}


def entry(program: str) -> str:
    """`module:function` as the package installs the program."""
    scripts = tomllib.loads((ROOT / PROGRAMS[program] / "pyproject.toml").read_text())["project"]["scripts"]
    return str(scripts[program])


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interruption_while_loading(program: str) -> None:
    module, function = entry(program).split(":")
    # argparse is the first thing that each of them loads for its command line.
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_rest):\n"
        "        if name == 'argparse':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.modules.pop('argparse', None)\n"
        f"from {module} import {function}\n"
        f"sys.exit({function}())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_starts(program: str) -> None:
    module, _function = entry(program).split(":")
    assert callable(importlib.import_module(module).run)
    command, env = [sys.executable, "-m", module, "--help"], {**os.environ, "MINGORA_LANG": "en"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {program} ")
