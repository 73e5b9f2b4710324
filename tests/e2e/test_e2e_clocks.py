"""A clock that is a day off, on either side, from the start or all of a sudden."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from e2e_clock import DAY, WrongClock
from e2e_support import RunningStack, User, make_project, until

pytestmark = pytest.mark.timeout(300)
DAYS = pytest.mark.parametrize("seconds", [DAY, -DAY], ids=["ahead", "behind"])
KEEPS = ["sh", "-c", "mkdir -p results; date +%s > results/when; echo done"]


def is_off(text: str, seconds: int) -> bool:
    """Whether a time that the platform states is that far off."""
    off = datetime.fromisoformat(text) - datetime.now(UTC)
    return abs(off - timedelta(seconds=seconds)) < timedelta(hours=1)


@pytest.mark.req("CLI-9", "CLI-10", "AUTH-1")
@DAYS
def test_a_command_line_whose_clock_is_a_day_off(user: User, tmp_path: Path, seconds: int) -> None:
    far = user.elsewhere(tmp_path / "far")
    far.env |= WrongClock(tmp_path / "clock", seconds).env
    far.login()
    job_id = far.submit(make_project(tmp_path / "project", KEEPS), "one")
    assert far.submit(tmp_path / "project", "one") == job_id
    follower = far.start("logs", job_id, "--follow")
    user.worker("--once")
    far.run("wait", job_id, "--timeout", "90")
    assert follower.communicate(timeout=60)[0] == b"done\n"
    far.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "when").exists()
    far.run("rm", job_id)


@pytest.mark.req("AUTH-5", "CLI-10")
@DAYS
def test_tls_with_a_clock_that_is_a_day_off(
    new_stack: Callable[..., RunningStack], new_user: Callable[[RunningStack], User], tmp_path: Path, seconds: int
) -> None:
    stack = new_stack("--host", "localhost")
    stack.start()
    user = new_user(stack)
    user.env |= WrongClock(tmp_path / "clock", seconds).env
    user.run("whoami")


@pytest.mark.req("WORK-4", "WORK-5", "JOB-7")
@DAYS
def test_a_worker_whose_clock_is_a_day_off(user: User, tmp_path: Path, seconds: int) -> None:
    job_id = user.submit(make_project(tmp_path / "project", KEEPS, timeoutSeconds=60))
    user.env |= WrongClock(tmp_path / "clock", seconds).env
    worker = user.worker("--once")
    assert worker.wait(90) == 0
    job = user.job(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert user.run("logs", job_id).stdout == b"done\n"


@pytest.mark.req("WORK-4", "WORK-5", "JOB-7")
def test_a_worker_whose_clock_is_set_while_a_job_runs(user: User, tmp_path: Path) -> None:
    code = "(trap '' TERM; setsid sleep 4321.5 >/dev/null 2>&1) & for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 1; done"
    job_id = user.submit(make_project(tmp_path / "project", ["sh", "-c", code], timeoutSeconds=60))
    clock = WrongClock(tmp_path / "clock")
    user.env |= clock.env
    worker = user.worker("--once")
    for number, seconds in enumerate((-DAY, DAY, 0), 1):
        line = b"%d\n" % (2 * number)
        until(lambda line=line: line in user.run("logs", job_id).stdout, 60, "the job goes on")  # type: ignore[misc]
        clock.set(seconds)
    assert worker.wait(90) == 0
    job = user.job(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert job["usage"]["cpuSeconds"] < 60


@pytest.mark.req("JOB-7", "AUTH-4", "OPS-2")
@DAYS
def test_a_platform_whose_clock_is_a_day_off(tmp_path: Path, seconds: int) -> None:
    stack = RunningStack(tmp_path / "data", env=WrongClock(tmp_path / "clock", seconds).env)
    user = User(stack, tmp_path / "home")
    try:
        stack.start()
        user.create().login()
        job_id = user.submit(make_project(tmp_path / "project", KEEPS))
        assert is_off(user.job(job_id)["createdAt"], seconds)
        user.work_once()
        user.run("wait", job_id, "--timeout", "90")
        user.run("download", job_id, "--output", str(tmp_path / "out"))
        stack.check_faults()
    finally:
        user.close()
        stack.close()


@pytest.mark.req("JOB-7", "JOB-4", "OPS-2")
def test_a_platform_whose_clock_is_set_while_a_job_runs(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock")
    stack = RunningStack(tmp_path / "data", env=clock.env)
    user = User(stack, tmp_path / "home")
    try:
        stack.start()
        user.create().login()
        code = "for i in $(seq 12); do echo $i; sleep 0.5; done"
        back = user.submit(make_project(tmp_path / "back", ["sh", "-c", code]))
        worker = user.worker()
        until(lambda: b"2\n" in user.run("logs", back).stdout, 60, "the job runs")
        clock.set(-DAY)
        user.run("wait", back, "--timeout", "90")  # nothing is lost by going back
        assert user.job(back)["attempt"] == 1

        ahead = user.submit(make_project(tmp_path / "ahead", ["sh", "-c", "echo begun; sleep 600"]))
        until(lambda: b"begun" in user.run("logs", ahead).stdout, 60, "the job runs")
        clock.set(DAY)  # two days at once: every lease and every login is over
        user.run("whoami", status=3)
        user.login()
        user.run("wait", ahead, "--timeout", "90", status=100)
        assert user.job(ahead)["reason"]["code"] == "lease_lost"
        following = user.submit(make_project(tmp_path / "following", KEEPS))
        user.run("wait", following, "--timeout", "90")
        assert worker.poll() is None
        stack.check_faults()
    finally:
        user.close()
        stack.close()
