"""The main path: from an account to verified results, and what a project looks like at the other end."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_support import RunningStack, User, make_project, python_project

COPY = """
set -e
mkdir -p results
for entry in *; do
    if [ "$entry" != results ]; then cp -Rp "$entry" results/; fi
done
"""


@pytest.mark.req("CLI-2", "CLI-8", "CLI-9", "CLI-12", "AUTH-1", "AUTH-2", "WORK-3", "OPS-2")
def test_a_job_from_login_to_verified_results(user: User, tmp_path: Path) -> None:
    project = tmp_path / "summary"
    user.run("init", str(project), "--template", "summary")
    job_id = user.submit(project, "first")
    assert user.job(job_id)["state"] == "queued"
    user.work_once()
    user.run("wait", job_id, "--timeout", "90")
    assert user.run("logs", job_id).stdout
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    results = user.job(job_id)["results"]
    assert results
    for result in results:
        content = (tmp_path / "out" / result["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == result["sha256"]

    assert user.submit(project, "first") == job_id
    (project / "main.py").write_text("print('something else')\n")
    user.run("submit", str(project), "--key", "first", status=5)


@pytest.mark.req("AUTH-6", "REST-2")
def test_nobody_else_sees_a_job(user: User, stack: RunningStack, new_user: Callable[[RunningStack], User],
                                tmp_path: Path) -> None:  # fmt: skip
    job_id = user.submit(make_project(tmp_path / "mine", ["true"]))
    other = new_user(stack)
    for words in (["status", job_id], ["logs", job_id], ["cancel", job_id], ["rm", job_id], ["explain", job_id]):
        other.run(*words, status=4)
    assert other.json("status")["jobs"] == []
    assert user.job(job_id)["state"] == "queued"


@pytest.mark.req("CLI-4", "CLI-5", "CLI-7", "WORK-3")
def test_a_project_of_somebody_elses_goes_through_unchanged(user: User, tmp_path: Path) -> None:
    project = make_project(tmp_path / "theirs", ["sh", "copy.sh"])
    chooser = random.Random(7)
    for number in range(280):
        target = project / f"package{number % 7}" / f"nested{number % 3}" / f"module{number}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(chooser.randbytes(chooser.randrange(0, 3000)))
    for package in list(project.glob("package*")) + list(project.glob("package*/nested*")):
        (package / "__init__.py").touch()
    for name in ("veri kümesi/ölçüm ığüşç.csv", "数据/结果.txt", "naïve e\u0301.txt", "with space & 'quote'.md"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(name.encode())
    (project / "tools").mkdir()
    (project / "tools" / "build.sh").write_text("#!/bin/sh\nexit 0\n")
    (project / "tools" / "build.sh").chmod(0o755)
    (project / "big.bin").write_bytes(chooser.randbytes(5 * 1024 * 1024 + 17))
    (project / "copy.sh").write_text(COPY)
    sent = {path: content for path, content in tree(project).items() if path != "job.json"}
    assert len(sent) >= 300

    job_id = user.submit(project)
    user.work_once()
    user.run("wait", job_id, "--timeout", "90")
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert tree(tmp_path / "out") == sent


@pytest.mark.req("CLI-7")
def test_a_job_without_output_succeeds(user: User, tmp_path: Path) -> None:
    job_id = user.submit(make_project(tmp_path / "quiet", ["true"]))
    user.work_once()
    user.run("wait", job_id, "--timeout", "90")
    assert user.run("logs", job_id).stdout == b""
    assert user.job(job_id)["results"] == []


@pytest.mark.req("WORK-6")
def test_a_log_is_kept_byte_for_byte(user: User, tmp_path: Path) -> None:
    code = """
import random, sys
out = sys.stdout.buffer
out.write(bytes(range(256)))
chooser = random.Random(1)
for _ in range(5):
    out.write(chooser.randbytes(1 << 20))
out.write(b"\\r\\n\\x00\\xff no newline at the end")
"""
    job_id = user.submit(python_project(tmp_path / "noisy", code))
    user.work_once()
    user.run("wait", job_id, "--timeout", "90")
    chooser = random.Random(1)
    expected = bytes(range(256)) + b"".join(chooser.randbytes(1 << 20) for _ in range(5))
    expected += b"\r\n\x00\xff no newline at the end"
    log = user.run("logs", job_id).stdout
    assert len(log) == len(expected)
    assert log == expected


def tree(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Every file below ``folder``: its content, and whether its owner may run it."""
    files = {}
    for parent, _folders, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            runs = bool(path.stat().st_mode & stat.S_IXUSR)
            files[path.relative_to(folder).as_posix()] = (path.read_bytes(), runs)
    return files
