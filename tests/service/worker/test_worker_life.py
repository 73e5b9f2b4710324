"""The worker as a process over time: registering, claiming, losing the network, being killed, starting again."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from service.worker.fake_platform import FakePlatform, Refusal
from service.worker.worker_process import StartWorker, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX signals")

SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_event(platform: FakePlatform, worker: WorkerProcess, name: str) -> None:
    platform.wait(lambda: worker.named(name))


@pytest.mark.req("AUTH-9")
def test_a_worker_whose_user_token_has_expired_claims_the_next_job(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    platform.submit(["true"])
    assert start_worker("--once").wait() == 0
    platform.user_tokens.clear()
    job = platform.submit(["echo", "again"])
    worker = start_worker("--once", token=False)
    assert worker.wait() == 0
    assert platform.report(job)["outcome"] == "succeeded"
    assert len(platform.nodes) == 1


@pytest.mark.req("AUTH-9")
def test_a_revoked_node_token_is_replaced_by_the_login(platform: FakePlatform, start_worker: StartWorker) -> None:
    worker = start_worker("--once")
    wait_for_event(platform, worker, "waiting")
    platform.wait(lambda: platform.count("claim") == 1)
    platform.node_tokens.clear()
    platform.refuse["claim"] = [Refusal(401, "invalid_token")]
    platform.submit(["true"])  # answers the waiting claim; the next one is refused
    assert worker.wait() == 0
    worker = start_worker("--once")
    job = platform.submit(["true"])
    assert worker.wait() == 0
    assert platform.report(job)["outcome"] == "succeeded"
    assert len(platform.nodes) == 1


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_without_any_valid_token_the_worker_stops_and_names_the_remedy(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    platform.submit(["true"])
    start_worker("--once").wait()
    platform.node_tokens.clear()
    platform.user_tokens.clear()
    platform.user_tokens.add("mgu_" + "n" * 43)
    worker = start_worker(env={"MINGORA_TOKEN": "mgu_" + "o" * 43}, token=False)
    assert worker.wait() == 3
    assert "mingora login" in worker.named("error")[0]["hint"]


@pytest.mark.req("AUTH-5")
def test_nothing_is_sent_over_plain_http_beyond_loopback(platform: FakePlatform, start_worker: StartWorker) -> None:
    worker = start_worker("--server", "http://192.0.2.1:1")
    assert worker.wait() == 2
    assert platform.seen == []


def test_another_platform_needs_another_folder(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.submit(["true"])
    start_worker("--once").wait()
    other = FakePlatform()
    try:
        worker = start_worker("--server", other.url)
        assert worker.wait() == 1
        assert "--root" in worker.named("error")[0]["hint"]
        assert other.seen == []
    finally:
        other.close()


@pytest.mark.req("WORK-2")
def test_one_worker_a_folder(platform: FakePlatform, start_worker: StartWorker) -> None:
    first = start_worker()
    wait_for_event(platform, first, "waiting")
    second = start_worker()
    assert second.wait() == 1
    assert "--root" in second.named("error")[0]["hint"]
    assert len(platform.nodes) == 1


@pytest.mark.req("JOB-9")
def test_a_lost_claim_answer_neither_loses_nor_doubles_the_job(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    platform.lose["claim"] = 1
    job = platform.submit(["echo", "once"])
    assert start_worker("--once").wait() == 0
    assert platform.report(job)["outcome"] == "succeeded"
    assert len(job.leases) == 1
    claims = [body["claimId"] for action, body in platform.seen if action == "claim"]
    assert len(claims) == 2
    assert len(set(claims)) == 1


@pytest.mark.req("WORK-5")
def test_an_outage_and_its_end_are_told_once_each(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.lose["claim"] = 2
    platform.submit(["true"])
    worker = start_worker("--once")
    assert worker.wait() == 0
    assert [len(worker.named(name)) for name in ("trouble", "reachable")] == [1, 1]


@pytest.mark.req("JOB-9")
def test_a_worker_killed_while_a_claim_is_answered_takes_the_lease_up(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    worker = start_worker()
    platform.wait(lambda: platform.count("claim") == 1)
    worker.process.send_signal(signal.SIGSTOP)
    job = platform.submit(["echo", "taken up"])
    platform.wait(lambda: job.leases)
    worker.kill()
    assert start_worker("--once").wait() == 0
    assert platform.report(job)["outcome"] == "succeeded"
    assert len(job.leases) == 1


@pytest.mark.req("WORK-4", "JOB-7")
def test_a_killed_worker_ends_and_reports_its_job_at_the_next_start(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    code = "import os, subprocess, sys, time\n"
    code += "p = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    code += "print(os.getpid(), p.pid, flush=True)\ntime.sleep(60)"
    job = platform.submit(["python", "-c", code])
    worker = start_worker()
    platform.wait(lambda: job.leases and b"\n" in job.lease.log)
    pids = [int(word) for word in bytes(job.lease.log).split()]
    worker.kill()
    assert any(alive(pid) for pid in pids)
    following = platform.submit(["echo", "next"])
    worker = start_worker("--once")
    assert worker.wait() == 0
    report = platform.report(job)
    assert (report["outcome"], report["reason"]["code"]) == ("failed", "worker_stopped")
    assert not any(alive(pid) for pid in pids)
    assert platform.report(following)["outcome"] == "succeeded"
    assert list((worker.root / "jobs").iterdir()) == []


@pytest.mark.req("WORK-6")
def test_what_a_killed_worker_had_not_sent_of_a_log_arrives_later(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    platform.refuse["logs"] = [Refusal(503, "unavailable") for _n in range(1000)]
    job = platform.submit(["python", "-c", "import time; print('tail', flush=True); time.sleep(60)"])
    worker = start_worker()
    platform.wait(lambda: len(platform.refuse["logs"]) < 1000)
    worker.kill()
    platform.refuse.clear()
    platform.submit(["true"])
    start_worker("--once").wait()
    assert platform.report(job)["logBytes"] == 5
    assert bytes(job.lease.log) == b"tail\n"


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_worker_reports_its_job(
    platform: FakePlatform, start_worker: StartWorker, number: signal.Signals
) -> None:
    job = platform.submit(["python", "-c", SLEEPER])
    worker = start_worker()
    platform.wait(lambda: job.leases and b"\n" in job.lease.log)
    following = platform.submit(["true"])
    worker.process.send_signal(number)
    assert worker.wait() == 0
    assert following.leases == []  # what comes next is for another worker, or a later one
    assert platform.report(job)["reason"]["code"] == "worker_stopped"
    assert not alive(int(bytes(job.lease.log)))


@pytest.mark.req("WORK-4")
def test_a_second_signal_ends_all_at_once(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
    job = platform.submit(["python", "-c", code])
    worker = start_worker()
    platform.wait(lambda: job.leases and b"\n" in job.lease.log)
    worker.process.terminate()
    time.sleep(0.5)
    assert worker.process.poll() is None
    worker.process.send_signal(signal.SIGINT)
    worker.wait(5)
    assert not alive(int(bytes(job.lease.log)))


@pytest.mark.req("WORK-5")
def test_an_idle_worker_stops_at_once_and_claims_rarely(platform: FakePlatform, start_worker: StartWorker) -> None:
    worker = start_worker()
    platform.wait(lambda: platform.count("claim") == 1)
    time.sleep(1)
    asked = time.monotonic()
    worker.process.send_signal(signal.SIGINT)
    assert worker.wait() == 0
    assert time.monotonic() - asked < 2
    assert platform.count("claim") == 2  # the second settles the first
    assert not (worker.root / "claim.json").exists()


@pytest.mark.req("JOB-7", "WORK-4")
def test_without_heartbeats_the_worker_ends_its_own_work(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.ttl = 4.0  # so that 45 of 60 seconds are 3 of 4
    job = platform.submit(["python", "-c", SLEEPER])
    worker = start_worker()
    platform.wait(lambda: job.leases and b"\n" in job.lease.log)
    platform.refuse["heartbeat"] = [Refusal(503, "unavailable") for _n in range(1000)]
    since = time.monotonic()
    pid = int(bytes(job.lease.log))
    platform.wait(lambda: not alive(pid))
    assert 1 < time.monotonic() - since < 6
    wait_for_event(platform, worker, "lease_lost")
    assert job.lease.report is None


@pytest.mark.req("JOB-4", "JOB-7")
def test_a_lease_taken_away_ends_the_work_unreported(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["python", "-c", SLEEPER])
    worker = start_worker("--once")
    platform.wait(lambda: job.leases and b"\n" in job.lease.log)
    platform.end_lease(job)
    assert worker.wait() == 0
    assert not alive(int(bytes(job.lease.log)))
    assert job.lease.report is None
    assert platform.count("report") == 0


@pytest.mark.req("REST-2")
def test_a_lost_report_answer_gets_the_same_report_again(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.lose["report"] = 1
    platform.lose["heartbeat"] = 1
    platform.lose["ready"] = 1
    job = platform.submit(["true"])
    assert start_worker("--once").wait() == 0
    assert platform.report(job)["outcome"] == "succeeded"
    assert platform.count("report") == 2


@pytest.mark.req("CLI-10")
def test_a_rate_limit_is_waited_out(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.refuse["claim"] = [Refusal(429, "rate_limited")]
    job = platform.submit(["true"])
    since = time.monotonic()
    assert start_worker("--once").wait() == 0
    assert time.monotonic() - since >= 1
    assert platform.report(job)["outcome"] == "succeeded"


@pytest.mark.req("WORK-1")
def test_a_full_disk_pauses_before_a_claim(platform: FakePlatform, start_worker: StartWorker) -> None:
    worker = start_worker("--max-disk", "1M")
    wait_for_event(platform, worker, "paused")
    assert platform.count("claim") == 0
    assert platform.pauses[0]["paused"] is True
    assert "--max-disk" in platform.pauses[0]["reason"]


@pytest.mark.req("WORK-1", "WORK-2")
def test_without_leave_for_native_jobs_it_refuses_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mingora_worker.cli import run

    assert run(["--root", str(tmp_path / "root")]) == 2
    assert "--allow-own-code" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


@pytest.mark.req("WORK-1")
def test_check_tells_what_is_there_and_what_is_missing(
    platform: FakePlatform, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mingora_worker.cli import run

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINGORA_URL", platform.url)
    monkeypatch.setenv("MINGORA_TOKEN", platform.user_token)
    arguments = ["--root", str(tmp_path / "root"), "--check", "--allow-own-code"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "sha256:" in shown
    assert "ada" in shown
    platform.user_tokens.clear()
    assert run(arguments) == 1
    assert "mingora login" in capsys.readouterr().out
    assert platform.nodes == {}


@pytest.mark.req("JOB-2")
def test_the_node_is_described_as_the_protocol_says(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.submit(["true"])
    options = ["--name", "lab-1", "--label", "rack=3", "--network-group", "lab", "--allow-cluster-network"]
    start_worker("--once", *options).wait()
    (node,) = platform.nodes.values()
    assert (node["name"], node["labels"], node["networkGroup"]) == ("lab-1", {"rack": "3"}, "lab")
    assert node["allowClusterNetwork"] is True
    assert node["runtimes"] == ["native"]
    assert node["cpu"] >= 1
    json.dumps(node)
