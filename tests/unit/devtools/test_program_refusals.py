"""What the system refuses before a program has begun its work: a line that says so, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.req("CLI-12", "WORK-1")
@pytest.mark.skipif(os.name != "posix", reason="Windows keeps a folder that a process is in")
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("mingora.cli", ["init", "project"]),
        ("mingora_worker.cli", ["--root", "work", "--allow-own-code"]),
        ("mingora_api.admin.cli", ["--data", "data", "account", "list"]),
        ("mingora_stack.cli", ["up", "--data", "data"]),
    ],
)
def test_a_working_folder_that_is_gone(program: str, words: list[str]) -> None:
    code = (
        "import os, sys, tempfile\n"
        f"from {program} import run\n"
        "os.chdir(folder := tempfile.mkdtemp())\n"
        "os.rmdir(folder)\n"
        "sys.argv[1:] = sys.argv[2:]\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
