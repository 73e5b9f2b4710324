"""The zip of the tools: unpacked, it runs on Python 3.10 with nothing but psutil, against a running stack."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest
from e2e_support import PASSWORD, RunningStack, User

from devtools import pack


def oldest_python() -> str:
    """Python 3.10, the oldest supported, where there is one; else the one that runs this test."""
    found = shutil.which("python3.10") or next(
        iter(glob.glob(os.path.expanduser("~/.pyenv/versions/3.10.*/bin/python"))), None
    )
    works = found and subprocess.run([found, "-c", "import ssl"], capture_output=True).returncode == 0
    return found if found and works else sys.executable


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The unpacked archive, and beside it a folder that holds psutil alone."""
    archive = pack.build(tmp_path / "tools.zip")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "unpacked")
    package = Path(psutil.__file__).parent
    shutil.copytree(package, tmp_path / "site" / "psutil")
    return next((tmp_path / "unpacked").iterdir())


@pytest.mark.req("CLI-1", "CLI-2", "WORK-1")
def test_the_unpacked_tools_run_a_job(tools: Path, stack: RunningStack, tmp_path: Path) -> None:
    user = User(stack, tmp_path / "home").create()
    # -S: no site-packages at all, so that nothing but the standard library (and psutil) can be imported.
    python = [oldest_python(), "-S", "-W", "error"]
    env = {**user.env, "PYTHONPATH": str(tmp_path / "site")}

    def mingora(*words: str, stdin: str = "") -> str:
        command = [*python, str(tools / "mingora.py"), *words]
        done = subprocess.run(
            command, input=stdin, env=user.env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "0.1.0" in mingora("--version")
    mingora("login", "--server", stack.url, "--identifier", user.name, "--password-stdin", stdin=PASSWORD + "\n")
    mingora("init", "my-project", "--template", "summary")
    mingora("submit", "my-project", "--key", "once")
    worker = [*python, str(tools / "mingora_worker.py"), "--root", "work", "--allow-own-code", "--once"]
    done = subprocess.run(worker, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    job = user.json("status")["jobs"][0]["id"]
    mingora("wait", job, "--timeout", "90")
    mingora("download", job, "--output", "out")
    assert (tmp_path / "out" / "summary.md").read_text(encoding="utf-8").startswith("#")


@pytest.mark.req("CLI-1", "WEB-3")
def test_the_same_sources_make_the_same_archive(tmp_path: Path) -> None:
    first, second = pack.build(tmp_path / "a.zip"), pack.build(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
    assert {"mingora.py", "mingora_worker.py", "LICENSE", "README.md"} <= {name.split("/", 1)[1] for name in names}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
