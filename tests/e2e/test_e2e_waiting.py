"""Following, waiting and cancelling while a job runs."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis
from e2e_support import RunningStack, User, make_project, prompt, python_project, until

GATED = """
import pathlib, sys, time
print("one", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("two", end="", flush=True)
"""

STOPS_GRACEFULLY = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("results").mkdir(exist_ok=True)
    pathlib.Path("results/partial.txt").write_text("what was done so far")
    print("stopping", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.req("CLI-2", "JOB-1")
def test_a_log_is_followed_while_the_job_runs(user: User, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job_id = user.submit(python_project(tmp_path / "gated", GATED, str(gate)))
    follower = user.start("logs", job_id, "--follow")
    try:
        user.worker("--once")
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"one\n"
        assert user.job(job_id)["state"] == "running"
        gate.touch()
        rest, errors = follower.communicate(timeout=60)
        assert rest == b"two"
        assert follower.returncode == 0, errors.decode()
    finally:
        gate.touch()
        follower.kill()
        follower.communicate()


@pytest.mark.req("JOB-9")
def test_a_waiting_worker_starts_a_job_about_at_once(user: User, tmp_path: Path) -> None:
    first = user.submit(make_project(tmp_path / "first", ["true"]))
    user.worker()
    user.run("wait", first, "--timeout", "90")
    job_id = user.submit(make_project(tmp_path / "second", ["true"]))
    user.run("wait", job_id, "--timeout", "90")
    job = user.job(job_id)
    # A claim comes every 15 s: only one that waits at the server gets a job this soon.
    waited = datetime.fromisoformat(job["startedAt"]) - datetime.fromisoformat(job["createdAt"])
    assert waited < timedelta(seconds=prompt(3.5))


@pytest.mark.req("WORK-4", "CLI-12", "JOB-1")
def test_a_cancelled_job_gets_time_to_keep_its_results(user: User, tmp_path: Path) -> None:
    job_id = user.submit(python_project(tmp_path / "long", STOPS_GRACEFULLY))
    user.worker("--once")
    until(lambda: b"ready" in user.run("logs", job_id).stdout, 60, "the job runs")
    user.run("cancel", job_id)
    user.run("wait", job_id, "--timeout", "90", status=103)
    assert user.job(job_id)["reason"]["code"] == "cancelled"
    assert user.run("logs", job_id).stdout == b"ready\nstopping\n"
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "partial.txt").read_text() == "what was done so far"


@pytest.mark.req("CLI-12")
def test_wait_ends_with_what_became_of_the_job(user: User, tmp_path: Path) -> None:
    failing = user.submit(make_project(tmp_path / "failing", ["sh", "-c", "echo no; exit 7"]))
    user.work_once()
    user.run("wait", failing, "--timeout", "90", status=100)
    job = user.job(failing)
    assert (job["state"], job["exitCode"], job["reason"]["code"]) == ("failed", 7, "exit_code")

    queued = user.submit(make_project(tmp_path / "queued", ["true"]))
    user.run("wait", queued, "--timeout", "0.5", status=124)
    user.run("status", queued, "--exit-code", status=101)
    user.run("cancel", queued)
    user.run("wait", queued, "--timeout", "90", status=103)


@pytest.mark.req("JOB-9")
def test_nothing_is_lost_when_redis_is_emptied(user: User, stack: RunningStack, tmp_path: Path) -> None:
    user.worker()
    over = threading.Event()

    def empty() -> None:
        with redis.Redis(unix_socket_path=str(stack.folder.run / "valkey.sock")) as client:
            while not over.wait(0.01):
                client.flushall()

    thread = threading.Thread(target=empty)
    thread.start()
    try:
        jobs = [user.submit(make_project(tmp_path / f"job{number}", ["echo", str(number)])) for number in range(3)]
    finally:
        over.set()
        thread.join()
    for number, job_id in enumerate(jobs):
        user.run("wait", job_id, "--timeout", "90")
        assert user.run("logs", job_id).stdout == f"{number}\n".encode()
