"""Tests that share something costly run in one test process: pytest-xdist has to keep a group together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, pathlib, pytest
pytestmark = pytest.mark.xdist_group("shared")

@pytest.mark.parametrize("number", range(4))
def test_where(number):
    pathlib.Path(__file__).with_name(f"{pathlib.Path(__file__).stem}-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.req("DOC-1")
def test_a_group_stays_in_one_process(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    noted = [path.read_text() for path in tmp_path.glob("test_*-?")]
    assert len(noted) == 8
    assert len(set(noted)) == 1
