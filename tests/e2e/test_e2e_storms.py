"""An overloaded gateway in front of the platform: nothing is lost, nothing is there twice, nobody asks without end."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_storm import Fault, StormProxy
from e2e_support import RunningStack, User, make_project, until

from mingora.transport import Transport

pytestmark = pytest.mark.timeout(300)
LINES = 300
COPY = f"mkdir -p results; cp data* results/; for i in $(seq {LINES}); do echo line $i; done"
LOG = "".join(f"line {number}\n" for number in range(1, LINES + 1)).encode()
# Requests beyond one undisturbed and one after each fault: a waiting read that came back early, a second look.
SPARE = 4
ROUTES_OF_A_JOB = {
    "GET /policy", "POST /objects/batch", "PUT /objects/:/parts/:", "POST /jobs", "POST /nodes", "POST /nodes/:/claim",
    "POST /nodes/:/ready", "POST /nodes/:/heartbeat", "PUT /nodes/:/logs", "POST /nodes/:/report",
    "GET /objects/:/content", "GET /jobs/:/logs", "GET /jobs/:",
}  # fmt: skip


@pytest.fixture
def proxy(stack: RunningStack) -> Iterator[StormProxy]:
    proxy = StormProxy(int(stack.url.rpartition(":")[2]))
    yield proxy
    proxy.close()


@pytest.mark.req("CLI-8", "CLI-9", "CLI-10", "WORK-5", "WORK-6", "JOB-4")
@pytest.mark.parametrize(
    "fault",
    [Fault(429), Fault(429, "1"), Fault(502, after=True), Fault(503), Fault(503, "1", after=True)],
    ids=lambda fault: f"{fault.status}-{fault.retry_after}-{'after' if fault.after else 'before'}",
)
def test_a_storm_on_every_route_changes_nothing(
    user: User, far_user: User, proxy: StormProxy, tmp_path: Path, fault: Fault
) -> None:
    project = make_project(tmp_path / "storm", ["sh", "-c", COPY])
    data = [random.Random(number).randbytes(50_000 + number) for number in range(3)]
    for number, content in enumerate(data):
        (project / f"data{number}").write_bytes(content)
    key = secrets.token_hex(8)
    proxy.begin(fault, times=2)
    started = time.monotonic()
    job_id = far_user.submit(project, key)
    worker = far_user.worker("--once")
    assert worker.wait(180) == 0, (far_user.home / "worker.log").read_text()
    assert far_user.run("logs", job_id).stdout == LOG
    far_user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert time.monotonic() - started < 200

    job = user.job(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert [each["id"] for each in user.json("status")["jobs"]] == [job_id]
    assert [(tmp_path / "out" / f"data{number}").read_bytes() for number in range(3)] == data
    assert [each["sha256"] for each in job["results"]] == [hashlib.sha256(content).hexdigest() for content in data]
    assert user_events(user, job_id).count("attempt.finished") == 1
    counts = proxy.counts()
    assert set(counts) >= ROUTES_OF_A_JOB, ROUTES_OF_A_JOB - set(counts)
    for route, count in counts.items():
        several = len(data) if "/objects/:" in route else 1
        several *= 2 if "/parts/" in route else 1  # project and results
        assert count <= 2 * 2 + several + SPARE, (route, count)


@pytest.mark.req("CLI-10")
def test_a_long_wait_is_told_and_not_slept(user: User, far_user: User, proxy: StormProxy, tmp_path: Path) -> None:
    project = make_project(tmp_path / "later", ["true"], {"data": secrets.token_hex(100)})
    proxy.begin(Fault(429, "3600"), times=1, only=frozenset({"POST /jobs"}))
    started = time.monotonic()
    done = far_user.run("submit", str(project), "--key", "later", status=6)
    assert time.monotonic() - started < 60
    assert b"Traceback" not in done.stderr
    assert b"Try again in 3600 s." in done.stderr
    assert proxy.counts()["POST /jobs"] == 1
    assert user.json("status")["jobs"] == []
    far_user.submit(project, "later")
    assert len(user.json("status")["jobs"]) == 1


@pytest.mark.req("WORK-5", "JOB-9")
def test_a_worker_that_is_told_to_wait_long_does_and_can_be_stopped(
    user: User, far_user: User, proxy: StormProxy, tmp_path: Path
) -> None:
    user.submit(make_project(tmp_path / "waiting", ["true"]))
    proxy.begin(Fault(429, "3600"), times=100, only=frozenset({"POST /nodes/:/claim"}))
    worker = far_user.worker()
    until(lambda: proxy.counts()["POST /nodes/:/claim"] == 1, 60, "the worker claims")
    time.sleep(3)
    assert proxy.counts()["POST /nodes/:/claim"] == 1
    worker.terminate()
    assert worker.wait(60) == 0


@pytest.mark.req("WORK-5", "JOB-7", "WORK-6")
def test_a_long_wait_asked_of_heartbeats_loses_no_lease(
    user: User, far_user: User, proxy: StormProxy, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "beating", ["sh", "-c", "echo begun; sleep 22; echo done"])
    job_id = user.submit(project)
    proxy.begin(Fault(503, "3600"), times=2, only=frozenset({"POST /nodes/:/heartbeat"}))
    far_user.worker("--once")
    user.run("wait", job_id, "--timeout", "90")
    assert user.job(job_id)["attempt"] == 1
    assert user.run("logs", job_id).stdout == b"begun\ndone\n"
    assert proxy.counts()["POST /nodes/:/heartbeat"] <= 8


@pytest.mark.req("WORK-5", "WORK-6", "JOB-4")
@pytest.mark.parametrize("status", [429, 503])
def test_an_outage_in_the_middle_of_a_job_is_waited_out_calmly(
    user: User, far_user: User, proxy: StormProxy, tmp_path: Path, status: int
) -> None:
    code = "echo begun; for i in $(seq 60); do echo $i; sleep 0.1; done; mkdir -p results; echo kept > results/kept"
    job_id = user.submit(make_project(tmp_path / "outage", ["sh", "-c", code]))
    far_user.worker("--once")
    until(lambda: b"begun" in user.run("logs", job_id).stdout, 60, "the job runs")
    proxy.begin(Fault(status, after=True), times=1_000_000)
    time.sleep(8)
    during = proxy.counts()
    proxy.begin(None)
    # Every 0.25 s at first, then ever more rarely; the log, heartbeats and what follows the end have a pace each.
    assert 1 <= sum(during.values()) <= 40, during
    user.run("wait", job_id, "--timeout", "90")
    assert user.job(job_id)["attempt"] == 1
    assert user.run("logs", job_id).stdout == b"begun\n" + b"".join(b"%d\n" % number for number in range(1, 61))
    assert [each["path"] for each in user.job(job_id)["results"]] == ["kept"]


@pytest.mark.req("CLI-4", "CLI-9", "BLOB-2")
@pytest.mark.parametrize("how", ["other bytes", "shorter", "longer", "removed"])
def test_a_file_that_changes_while_it_is_sent_is_named_and_nothing_wrong_is_kept(
    user: User, far_user: User, proxy: StormProxy, tmp_path: Path, how: str
) -> None:
    data = random.Random(how).randbytes(5 << 20)
    project = make_project(tmp_path / "changing", ["sh", "-c", "mkdir -p results; cp inner/* results/"])
    file = project / "inner" / "changing.bin"
    file.parent.mkdir()
    file.write_bytes(data)
    changes: dict[str, Callable[[], object]] = {
        "other bytes": lambda: file.write_bytes(data[::-1]),
        "shorter": lambda: file.write_bytes(data[:-1]),
        "longer": lambda: file.write_bytes(data + b"x"),
        "removed": file.unlink,
    }
    changed = threading.Event()

    def meddle(route: str) -> None:
        if route == "POST /objects/batch" and not changed.is_set():
            changed.set()
            changes[how]()

    proxy.before = meddle
    done = far_user.run("submit", str(project), "--key", "changing", status=1)
    assert b"inner/changing.bin" in done.stderr
    assert user.json("status")["jobs"] == []
    with Transport(user.stack.url, token=user.login_record()["token"]) as transport:
        objects = transport.request_json("GET", "/objects").data["objects"]
    assert not [each for each in objects if each["state"] == "complete" and each["size"] > 1000]

    file.write_bytes(data)
    job_id = far_user.submit(project, "changing")
    user.work_once()
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "changing.bin").read_bytes() == data


def user_events(user: User, job_id: str) -> list[str]:
    """The types of a job's events, in order."""
    lines = user.run("events", job_id, "--json").stdout.splitlines()
    return [str(json.loads(line)["event"]["type"]) for line in lines]
