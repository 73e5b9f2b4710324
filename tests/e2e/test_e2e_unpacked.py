"""The zip of the tools, unpacked, runs with nothing but Python (and psutil for the worker)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from e2e_support import PASSWORD, User, make_project

from devtools import pack

# Python 3.10 where there is one: the oldest that the tools must run on.
OLDEST = shutil.which("python3.10")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The unpacked archive."""
    with zipfile.ZipFile(pack.build(tmp_path / "tools.zip")) as archive:
        archive.extractall(tmp_path / "unpacked")
    (folder,) = (tmp_path / "unpacked").iterdir()
    return folder


@pytest.fixture
def worker_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ends what a test puts into it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    "python",
    [
        sys.executable,
        pytest.param(OLDEST, marks=pytest.mark.skipif(OLDEST is None, reason="no python3.10 on the PATH")),
    ],
)
def test_the_unpacked_tools_run_a_job(
    user: User, tools: Path, tmp_path: Path, python: str, worker_processes: list[subprocess.Popen[bytes]]
) -> None:
    env = user.env | {"MINGORA_CONFIG": str(tmp_path / "login.json")}

    def mingora(*words: str, stdin: bytes = b"") -> bytes:
        command = [python, "-I", "-S", str(tools / "mingora.py"), *words]  # -S: without any installed package
        done = subprocess.run(command, env=env, cwd=tmp_path, input=stdin, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    mingora("login", "--server", user.stack.url, "--identifier", user.name, "--password-stdin",
            stdin=PASSWORD.encode() + b"\n")  # fmt: skip
    job_id = mingora("submit", str(make_project(tmp_path / "project", ["echo", "ran"])), "--key", "k").decode().strip()
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "psutil").symlink_to(Path(psutil.__file__).parent)
    words = ["--root", str(tmp_path / "worker"), "--allow-own-code", "--once"]
    worker = subprocess.Popen(
        [python, "-S", str(tools / "mingora_worker.py"), *words],
        env=env | {"PYTHONPATH": os.fspath(installed)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    worker_processes.append(worker)
    mingora("wait", job_id, "--timeout", "30")
    assert mingora("logs", job_id) == b"ran\n"
    _, said = worker.communicate(timeout=20)
    assert worker.returncode == 0, said.decode()
