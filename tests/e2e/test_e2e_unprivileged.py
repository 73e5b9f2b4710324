"""A worker that isn't root: what its jobs lock away from it is told, costs nothing else, and is cleared away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from e2e_support import User, environment, make_project

from devtools import pack

pytestmark = pytest.mark.timeout(240)
NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


def usable(python: str) -> bool:
    code = "import sys, ssl; sys.exit(sys.version_info < (3, 10))"
    return Path(python).exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody reaches, with the tools and psutil; what is inside belongs to another user."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not usable(SYSTEM_PYTHON):
        pytest.skip("only root can start a worker of somebody else's, and its Python must be everybody's")
    folder = Path(tempfile.mkdtemp(prefix="mingora-"))
    try:
        folder.chmod(0o755)
        with zipfile.ZipFile(pack.build(folder / "tools.zip")) as archive:
            archive.extractall(folder / "tools")
        shutil.copytree(Path(psutil.__file__).parent, folder / "site" / "psutil")
        for name in ("work", "home"):
            (folder / name).mkdir(mode=0o700)
        os.chown(folder / "work", NOBODY, NOBODY)
        (folder / "home").chmod(0o555)  # nothing can be written at home
        for path in (folder / "tools").rglob("*"):
            path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.is_dir() else 0))
        yield folder
    finally:
        shutil.rmtree(folder)


def work_once(user: User, place: Path) -> str:
    """Run a worker as nobody for one job, to its end; what it said."""
    launcher = next((place / "tools").rglob("mingora_worker.py"))
    login = user.login_record()
    env = environment(
        PYTHONPATH=str(place / "site"), HOME=str(place / "home"), MINGORA_URL=login["server"],
        MINGORA_TOKEN=login["token"], PATH="/usr/local/bin:/usr/bin:/bin",
    )  # fmt: skip
    command = [SYSTEM_PYTHON, "-S", str(launcher), "--root", str(place / "work" / "root"), "--allow-own-code", "--once"]
    done = subprocess.run(command, env=env, cwd=place / "work", user=NOBODY, group=NOBODY, extra_groups=[],
                          capture_output=True, text=True, timeout=180)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.req("WORK-1", "WORK-3", "WORK-4", "JOB-7")
@pytest.mark.parametrize(
    ("code", "state", "kept", "warned"),
    [
        ("cd results; echo a > open; echo b > shut; chmod 0 shut", "succeeded", ["open"], "shut"),
        ("cd results; echo a > open; mkdir closed; echo b > closed/b; chmod 0 closed", "succeeded", ["open"], "closed"),
        ("echo a > results/open; chmod 555 results .", "succeeded", ["open"], None),
        ("echo a > results/open; chmod 0 results", "failed", [], None),
        ("rmdir results; chmod 555 .", "succeeded", [], None),
        ("echo lost > $HOME/file || echo refused; echo a > results/open", "succeeded", ["open"], None),
        ("chmod 0 $TMPDIR .; exit 3", "failed", [], None),
    ],
    ids=["file", "folder", "read-only", "results", "none", "home", "all"],
)
def test_what_a_job_locks_away(
    user: User, place: Path, tmp_path: Path, code: str, state: str, kept: list[str], warned: str | None
) -> None:
    job_id = user.submit(make_project(tmp_path / "locks", ["sh", "-c", code]))
    said = work_once(user, place)
    assert "Traceback" not in said
    job = user.job(job_id)
    assert job["state"] == state, job["reason"]
    assert [result["path"] for result in job["results"]] == kept
    if state == "failed":
        assert job["reason"]["code"] in {"result_refused", "exit_code"}
        assert job["reason"]["message"]
    events = user.run("events", job_id, "--json").stdout.decode()
    assert warned is None or ("job.warning" in events and warned in events)
    if "$HOME" in code:
        assert b"refused" in user.run("logs", job_id).stdout
    assert list((place / "work" / "root" / "jobs").iterdir()) == []
    assert sys.platform != "linux" or (place / "work" / "root").stat().st_uid == NOBODY
