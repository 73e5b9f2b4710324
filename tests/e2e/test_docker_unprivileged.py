"""Docker jobs where nobody is root: a worker of its own account, and an engine without root that can't hold a job."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docker_images
import pytest
from docker_support import Registry, require
from e2e_support import User, environment, make_project
from rootless_engine import ACCOUNT, require_rootless, rootless_engine

from devtools import pack

pytestmark = [pytest.mark.timeout(240), pytest.mark.engine("docker")]
SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGES = ("psutil", "docker", "requests", "urllib3", "idna", "certifi", "charset_normalizer")
SOCKET = Path("/var/run/docker.sock")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody reaches, with the tools and their packages, and one of the account's own in it."""
    require(os.geteuid() == 0 and Path(SYSTEM_PYTHON).exists(), "root, to be somebody else, with everybody's Python")
    folder = Path(tempfile.mkdtemp(prefix="mingora-"))
    try:
        with zipfile.ZipFile(pack.build(folder / "tools.zip")) as archive:
            archive.extractall(folder / "tools")
        for name in PACKAGES:
            found = importlib.import_module(name).__file__
            assert found is not None
            shutil.copytree(Path(found).parent, folder / "site" / name)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.is_dir() else 0))
        (folder / "own").mkdir(mode=0o700)
        os.chown(folder / "own", ACCOUNT, ACCOUNT)
        yield folder
    finally:
        shutil.rmtree(folder)


def work(place: Path, *options: str, group: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """A worker of the account, to its end."""
    launcher = next((place / "tools").rglob("mingora_worker.py"))
    command = [SYSTEM_PYTHON, "-S", str(launcher), "--root", str(place / "own" / "root"), *options]
    return subprocess.run(
        command, cwd=place, user=ACCOUNT, group=ACCOUNT, extra_groups=[] if group is None else [group],
        env=environment(PYTHONPATH=str(place / "site"), HOME=str(place / "own"), **env),
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


@pytest.mark.req("WORK-1", "WORK-3", "WORK-7")
def test_a_worker_without_root_holds_its_jobs_as_well(
    user: User, registry: Registry, place: Path, tmp_path: Path
) -> None:
    """Its output's quota is kept by a tmpfs volume, and its results come by the engine."""
    code = "id -u; cat data/set; echo new >results/new; ln -s /etc/passwd results/link"
    code += "; for part in $(seq 20); do head -c 1048576 /dev/zero >results/part-$part; done"
    files = {"data/set": "input\n"}
    project = make_project(
        tmp_path / "docker", ["sh", "-c", f"{code}; true"], files, runtime="docker", resources={"memoryMiB": 32}
    )
    job_id = user.submit(project)
    login = user.login_record()
    done = work(
        place, "--docker-image", docker_images.plain(registry), "--once", group=SOCKET.stat().st_gid,
        MINGORA_URL=login["server"], MINGORA_TOKEN=login["token"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    job = user.job(job_id)
    assert job["state"] == "succeeded", job["reason"]
    isolation = job["ranks"][0]["isolation"]
    assert (isolation["quota"], isolation["user"], isolation["outputMiB"]) == ("tmpfs", f"{ACCOUNT}:{ACCOUNT}", 16)
    assert user.run("logs", job_id).stdout.startswith(f"{ACCOUNT}\ninput\n".encode())
    assert {result["path"] for result in job["results"]} > {"new", "part-1"}
    assert sum(result["size"] for result in job["results"]) <= 16 << 20
    events = user.run("events", job_id, "--json").stdout.decode()
    assert "link" in events and "filled its output" in events
    assert list((place / "own" / "root" / "jobs").iterdir()) == []


@pytest.mark.req("WORK-7")
def test_an_engine_that_keeps_no_limits_gets_no_jobs(registry: Registry, place: Path) -> None:
    """A rootless engine without delegated control groups takes a memory limit and doesn't keep it."""
    require_rootless()
    with rootless_engine(place) as host:
        done = work(place, "--docker-image", docker_images.plain(registry), "--check", DOCKER_HOST=host)
    assert done.returncode == 1
    refusal = next(line for line in done.stdout.splitlines() if "don't hold on this engine" in line)
    assert "the memory limit" in refusal and "the limit of processes" in refusal
