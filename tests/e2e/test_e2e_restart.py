"""What survives: killed processes of the stack, a killed worker, a restart, a clean stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_support import RunningStack, User, environment, make_project, prompt, python_project, until

LINES = 30
COUNTS = f"""
import pathlib, time
for number in range({LINES}):
    print("line", number, flush=True)
    time.sleep(0.1)
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/done.txt").write_text("done")
"""


@pytest.mark.req("JOB-4", "JOB-7", "WORK-6", "OPS-2")
@pytest.mark.parametrize("role", ["valkey", "tasks", "server worker", "server", "supervisor"])
def test_one_result_though_a_process_is_killed(
    breakable_stack: RunningStack, new_user: Callable[[RunningStack], User], tmp_path: Path, role: str
) -> None:
    stack = breakable_stack
    user = new_user(stack)
    job_id = user.submit(python_project(tmp_path / "counts", COUNTS))
    user.worker()
    until(lambda: b"line 3\n" in user.run("logs", job_id).stdout, 60, "the job runs")
    if role == "supervisor":
        stack.kill()
        stack.start()
    else:
        victim = stack.process_of(role)
        victim.kill()
    user.run("wait", job_id, "--timeout", "90")
    job = user.job(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert [result["path"] for result in job["results"]] == ["done.txt"]
    assert user.run("logs", job_id).stdout == b"".join(b"line %d\n" % number for number in range(LINES))
    assert attempts(stack, job_id) == ["succeeded"]
    # What was killed runs again, once: the next job needs all of it.
    following = user.submit(make_project(tmp_path / "next", ["true"]))
    user.run("wait", following, "--timeout", "90")
    assert stack.roles() == ["server", "server worker", "tasks", "valkey"]


@pytest.mark.req("JOB-7", "WORK-4")
def test_a_killed_workers_job_fails_at_its_restart_and_the_next_runs(user: User, tmp_path: Path) -> None:
    lost = user.submit(make_project(tmp_path / "lost", ["sh", "-c", "echo begun; sleep 60"]))
    worker = user.worker()
    until(lambda: b"begun" in user.run("logs", lost).stdout, 60, "the job runs")
    worker.kill()
    worker.wait()
    following = user.submit(make_project(tmp_path / "next", ["echo", "next"]))
    user.worker()
    user.run("wait", lost, "--timeout", "90", status=100)
    assert user.job(lost)["reason"]["code"] == "worker_stopped"
    assert user.run("logs", lost).stdout == b"begun\n"
    user.run("wait", following, "--timeout", "90")


@pytest.mark.req("OPS-2")
def test_a_stop_is_clean_and_a_restart_goes_on_where_it_was(
    new_stack: Callable[..., RunningStack], new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    stack = new_stack()
    stack.start()
    user = new_user(stack)
    done = user.submit(make_project(tmp_path / "first", ["echo", "first"]))
    user.worker()  # from the first job's end on it has a claim parked
    user.run("wait", done, "--timeout", "90")
    idle = new_user(stack)  # without a worker
    queued = idle.submit(make_project(tmp_path / "queued", ["echo", "queued"]))
    second = subprocess.run(stack.command(), env=environment(), capture_output=True, text=True, timeout=90)
    assert second.returncode == 1
    assert stack.process is not None
    assert f"process {stack.process.pid}" in second.stderr

    time.sleep(0.5)
    started = time.monotonic()
    assert stack.stop() == 0
    assert time.monotonic() - started < prompt(3)
    assert stack.processes() == []
    assert list(stack.folder.run.glob("*.sock")) == []

    stack.start()
    assert user.job(done)["state"] == "succeeded"
    assert idle.job(queued)["state"] == "queued"
    idle.work_once()
    assert idle.run("logs", queued).stdout == b"queued\n"
    following = user.submit(make_project(tmp_path / "second", ["echo", "second"]))
    user.run("wait", following, "--timeout", "90")
    assert user.run("logs", following).stdout == b"second\n"


@pytest.mark.req("OPS-2")
def test_ctrl_c_while_it_starts_leaves_nothing_behind(new_stack: Callable[..., RunningStack]) -> None:
    stack = new_stack()
    process = subprocess.Popen(stack.command(), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: stack.folder.run.is_dir() and bool(stack.processes()), 60, "a process of it runs")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert said == b""
        assert stack.processes() == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.req("OPS-2")
def test_a_taken_port_is_named_and_nothing_is_left_running(new_stack: Callable[..., RunningStack]) -> None:
    stack = new_stack()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        command = [word if word != "0" else port for word in stack.command()]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    assert f"Port {port} is taken" in done.stderr
    assert stack.processes() == []


@pytest.mark.req("OPS-2", "AUTH-5")
def test_with_a_host_name_all_goes_over_tls(
    new_stack: Callable[..., RunningStack], new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    stack = new_stack("--host", "localhost")
    stack.start()
    assert stack.url.startswith("https://localhost:")
    user = new_user(stack)
    job_id = user.submit(make_project(tmp_path / "secure", ["sh", "-c", "mkdir results; echo kept > results/kept"]))
    user.work_once()
    user.run("wait", job_id, "--timeout", "90")
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "kept").read_text() == "kept\n"

    distrusting = user.elsewhere(tmp_path / "other")
    refused = distrusting.run(
        "login", "--server", stack.url, "--identifier", user.name, "--password-stdin", status=1, stdin=b"x\n"
    )
    assert b"certificate" in refused.stderr.lower()
    started = time.monotonic()
    assert stack.stop() == 0
    assert time.monotonic() - started < prompt(3)


def attempts(stack: RunningStack, job_id: str) -> list[str]:
    """The states of a job's attempts, as the database has them."""
    with contextlib.closing(sqlite3.connect(stack.folder.platform, timeout=10)) as connection:
        rows = connection.execute("SELECT state FROM attempts WHERE job_id = ? ORDER BY number", (job_id,))
        return [state for (state,) in rows]
