"""Storage that fails: flipped bytes, unusable files, a full disk, a disk that is read-only all of a sudden."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_support import RunningStack, User, environment, make_project, until

pytestmark = pytest.mark.timeout(300)
PART = 2 << 20
KEEPS = ["sh", "-c", "mkdir -p results; cp *.bin results/"]


def project_of(folder: Path, seed: int, size: int) -> tuple[Path, bytes]:
    data = random.Random(seed).randbytes(size)
    project = make_project(folder, KEEPS)
    (project / "data.bin").write_bytes(data)
    return project, data


def flip(file: Path, near: bytes) -> None:
    """Flip a byte where ``near`` is stored, as a failing disk would."""
    found = file.read_bytes().find(near)
    assert found > 0
    with open(file, "r+b") as opened:
        opened.seek(found)
        opened.write(bytes([near[0] ^ 0xFF]))


@pytest.mark.req("BLOB-1", "BLOB-2", "CLI-9", "OPS-2")
def test_a_flipped_byte_is_told_and_spoils_nothing_else(
    new_stack: Callable[..., RunningStack], new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    stack = new_stack()
    stack.start()
    user = new_user(stack)
    project, data = project_of(tmp_path / "project", 1, 3 * PART)
    other, other_data = project_of(tmp_path / "other", 2, PART)
    jobs = [user.submit(each) for each in (project, other)]
    user.worker()
    for job_id in jobs:
        user.run("wait", job_id, "--timeout", "90")
    assert stack.stop() == 0
    middle = PART + PART // 2
    flip(stack.folder.content, data[middle : middle + 64])
    stack.start()

    started = time.monotonic()
    done = user.run("download", jobs[0], "--output", str(tmp_path / "bad"), status=1)
    assert time.monotonic() - started < 100
    assert b"Traceback" not in done.stderr
    assert b"digest" in done.stderr or b"SHA-256" in done.stderr
    assert not (tmp_path / "bad" / "data.bin").exists()
    user.run("download", jobs[1], "--output", str(tmp_path / "good"))
    assert (tmp_path / "good" / "data.bin").read_bytes() == other_data

    again = user.submit(project)  # the content is sent anew
    user.run("wait", again, "--timeout", "90")
    user.run("download", again, "--output", str(tmp_path / "again"))
    assert (tmp_path / "again" / "data.bin").read_bytes() == data
    log = (stack.folder.logs / "server.log").read_text()
    assert 1 <= log.count('"content_lost"') <= 10
    stack.check_faults()


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("name", ["content.sqlite", "platform.sqlite"])
@pytest.mark.parametrize("damage", ["header", "empty pages", "text"])
def test_an_unusable_file_is_named_and_the_start_ends(
    new_stack: Callable[..., RunningStack], name: str, damage: str
) -> None:
    stack = new_stack()
    stack.start()
    assert stack.stop() == 0
    file = stack.data / name
    size = file.stat().st_size
    with open(file, "r+b") as opened:
        opened.write({"header": b"\xff" * 100, "empty pages": b"\0" * size, "text": b"not a database\n" * 10}[damage])
    before = file.read_bytes()
    started = time.monotonic()
    done = subprocess.run(stack.command(), env=environment(), capture_output=True, text=True, timeout=100)
    assert time.monotonic() - started < 100
    assert done.returncode == 1
    assert done.stdout == ""
    assert name in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert stack.processes() == []
    assert file.read_bytes() == before


@pytest.mark.req("OPS-2")
def test_a_program_that_cant_stay_up_ends_the_stack_with_the_reason(
    new_stack: Callable[..., RunningStack], tmp_path: Path
) -> None:
    stack = new_stack()
    stack.start()
    with open(stack.folder.content, "r+b") as opened:
        opened.write(b"\xff" * 100)
    stack.process_of("server").kill()
    assert stack.process is not None
    assert stack.process.wait(200) == 1
    notes = (stack.folder.logs / "stack.log").read_text()
    assert notes.count("server ended with code") <= 10
    assert stack.processes() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "small", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting isn't allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def cramped(small_disk: Path, tmp_path: Path) -> Iterator[tuple[RunningStack, User, str, bytes]]:
    """A stack on the small disk, an account on it, and a job that has ended with results."""
    stack = RunningStack(small_disk / "data")
    user = User(stack, tmp_path / "home")
    try:
        stack.start()
        user.create().login()
        project, data = project_of(tmp_path / "project", 1, PART)
        job_id = user.submit(project)
        user.work_once()
        user.run("wait", job_id, "--timeout", "90")
        yield stack, user, job_id, data
    finally:
        user.close()
        stack.close()


def reads_work(user: User, job_id: str, data: bytes, folder: Path) -> None:
    assert user.job(job_id)["state"] == "succeeded"
    user.run("logs", job_id)
    user.run("events", job_id)
    user.run("download", job_id, "--output", str(folder))
    assert (folder / "data.bin").read_bytes() == data


@pytest.mark.req("OPS-2", "BLOB-2", "JOB-1")
def test_a_full_disk(cramped: tuple[RunningStack, User, str, bytes], tmp_path: Path) -> None:
    stack, user, job_id, data = cramped
    filler = stack.data.parent / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    reads_work(user, job_id, data, tmp_path / "out")
    project, _ = project_of(tmp_path / "more", 2, PART)
    started = time.monotonic()
    refused = user.start("submit", str(project), "--key", "more")
    _, said = refused.communicate(timeout=100)
    assert refused.returncode in {1, 7}
    assert b"disk is full" in said, said
    assert time.monotonic() - started < 100
    deleted = user.start("rm", job_id)
    _, said = deleted.communicate(timeout=100)
    assert deleted.returncode == 0 or b"disk is full" in said, said
    if deleted.returncode:
        reads_work(user, job_id, data, tmp_path / "out2")

    filler.unlink()
    following = user.submit(project, "more")
    user.work_once()
    user.run("wait", following, "--timeout", "90")
    user.run("rm", following)
    stack.check_faults()
    until(lambda: stack.roles() == ["server", "server worker", "tasks", "valkey"], 60, "all of it runs")


@pytest.mark.req("OPS-2")
def test_a_read_only_folder_is_told(small_disk: Path) -> None:
    stack = RunningStack(small_disk / "data")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = subprocess.run(stack.command(), env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert str(stack.data) in done.stderr and "ead-only" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
