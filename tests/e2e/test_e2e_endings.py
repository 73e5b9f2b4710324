"""How a job can end, as its owner sees it: the reason, the exit code, what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e_support import RunningStack, User, make_project, python_project, until

from mingora.transport import Transport

GREEDY = """
import time
kept = []
while True:
    kept.append(bytearray(20 << 20))
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def busy_user(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """An account with a worker that runs one job after another."""
    user = User(stack, tmp_path_factory.mktemp("busy") / "home").create().login()
    user.worker()
    yield user
    user.close()


@pytest.mark.req("JOB-7", "WORK-4", "CLI-12")
@pytest.mark.parametrize(
    ("command", "spec", "code", "exit_code"),
    [
        (["sh", "-c", "exit 3"], {}, "exit_code", 3),
        (["sh", "-c", "kill -9 $$"], {}, "signal", None),
        (["no-such-command-anywhere"], {}, "command_not_found", None),
        (["sleep", "60"], {"timeoutSeconds": 1}, "timed_out", None),
        (["sh", "-c", "head -c 9000000 /dev/zero > results/big"], {}, "quota_exceeded", 0),
    ],
    ids=["exit", "signal", "command", "time", "quota"],
)
def test_a_failed_job_says_why(
    busy_user: User, tmp_path: Path, command: list[str], spec: dict[str, Any], code: str, exit_code: int | None
) -> None:
    job_id = busy_user.submit(make_project(tmp_path / "failing", command, **spec))
    busy_user.run("wait", job_id, "--timeout", "90", status=100)
    job = busy_user.job(job_id)
    assert (job["state"], job["reason"]["code"], job["exitCode"]) == ("failed", code, exit_code)
    assert job["results"] == []


@pytest.mark.req("JOB-7", "CLI-12")
def test_exit_codes_reach_the_owner_as_they_are(busy_user: User, tmp_path: Path) -> None:
    codes = (1, 2, 64, 126, 127, 128, 137, 254, 255)
    jobs = {
        code: busy_user.submit(make_project(tmp_path / f"exit{code}", ["sh", "-c", f"exit {code}"])) for code in codes
    }
    for code, job_id in jobs.items():
        busy_user.run("wait", job_id, "--timeout", "90", status=100)
        job = busy_user.job(job_id)
        assert (job["reason"]["code"], job["exitCode"]) == ("exit_code", code)


@pytest.mark.req("WORK-4", "JOB-6")
def test_a_job_over_its_memory_budget_is_stopped(busy_user: User, tmp_path: Path) -> None:
    job_id = busy_user.submit(python_project(tmp_path / "greedy", GREEDY, resources={"memoryMiB": 200}))
    busy_user.run("wait", job_id, "--timeout", "90", status=100)
    job = busy_user.job(job_id)
    assert job["reason"]["code"] == "memory_exceeded"
    assert job["usage"]["maxMemoryMiB"] > 200
    assert job["usage"]["verified"] is False


@pytest.mark.req("WORK-4")
def test_nothing_of_a_job_outlives_it(busy_user: User, tmp_path: Path) -> None:
    needle = "4321.125"
    code = f"setsid sleep {needle} >/dev/null 2>&1 & echo left"
    job_id = busy_user.submit(make_project(tmp_path / "daemon", ["sh", "-c", code]))
    busy_user.run("wait", job_id, "--timeout", "90")

    def lives() -> bool:
        return any(needle in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))

    until(lambda: not lives(), 5, "the job's background process is ended")


@pytest.mark.req("JOB-8", "JOB-7")
def test_a_job_that_asks_for_it_is_tried_again(busy_user: User, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = f"test -e {seen} && exit 0; touch {seen}; exit 75"
    spec: dict[str, Any] = {"retry": {"max": 1, "onExitCodes": [75]}}
    job_id = busy_user.submit(make_project(tmp_path / "again", ["sh", "-c", code], **spec))
    busy_user.run("wait", job_id, "--timeout", "90")
    assert busy_user.job(job_id)["attempt"] == 2


@pytest.mark.req("JOB-1", "BLOB-1", "BLOB-7")
def test_a_deleted_job_gives_its_space_back(busy_user: User, tmp_path: Path) -> None:
    copy = "cp data.bin results/copy.bin; echo more >> results/copy.bin"
    project = make_project(tmp_path / "kept", ["sh", "-c", copy])
    (project / "data.bin").write_bytes(bytes(range(256)) * 4096)
    job_id = busy_user.submit(project)
    busy_user.run("wait", job_id, "--timeout", "90")
    before = used_bytes(busy_user)
    busy_user.run("rm", job_id)
    assert before - used_bytes(busy_user) >= 2 * 1024 * 1024
    busy_user.run("status", job_id, status=4)


def used_bytes(user: User) -> int:
    """What the account's objects take, as the platform counts it."""
    login = user.login_record()
    with Transport(login["server"], token=login["token"]) as transport:
        return int(transport.request_json("GET", "/objects", query={"limit": 1}).data["usage"]["bytes"])
