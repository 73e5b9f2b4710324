"""One job through the real worker process: inputs, environment, log, results, exit, and every way to end early."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from service.worker.fake_platform import FakePlatform, Refusal
from service.worker.worker_process import StartWorker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX signals")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.req("WORK-2", "WORK-3", "WORK-6", "CLI-7")
def test_a_job_runs_and_its_log_and_results_arrive(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = """
import pathlib
print("hello ü")
pathlib.Path("results/out.txt").write_text(open("data/ä.txt").read())
open("results/empty", "w").close()
"""
    files = {"main.py": code.encode(), "data/ä.txt": b"content", "pkg/__init__.py": b""}
    job = platform.submit(["python3", "main.py"], files)
    worker = start_worker("--once")
    assert worker.wait() == 0
    report = platform.report(job)
    assert (report["outcome"], report["reason"], report["exitCode"]) == ("succeeded", None, 0)
    assert bytes(job.lease.log) == "hello ü\n".encode()
    assert platform.results(job) == {"out.txt": b"content", "empty": b""}
    assert job.lease.started
    assert list((worker.root / "jobs").iterdir()) == []
    assert worker.root.stat().st_mode & 0o777 == 0o700
    assert (worker.root / "node.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.req("WORK-2", "WORK-8", "CLI-7")
def test_the_environment_is_clean_and_complete(
    platform: FakePlatform, start_worker: StartWorker, tmp_path: Path
) -> None:
    script = b"#!/bin/sh\nenv\npwd\n[ -t 0 ] || cat\n"
    data = tmp_path / "set"
    data.mkdir()
    job = platform.submit(
        ["./tool.sh"], {"tool.sh": script}, executable=("tool.sh",), env={"COLOUR": "blue"}, data=["TRAIN_SET"]
    )
    worker = start_worker("--once", "--data", f"TRAIN_SET={data}", env={"AWS_SECRET_ACCESS_KEY": "s3cret"})
    worker.wait()
    env = dict(line.split("=", 1) for line in bytes(job.lease.log).decode().splitlines() if "=" in line)
    assert env["COLOUR"] == "blue"
    assert env["MINGORA_DATA_TRAIN_SET"] == str(data)
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["MINGORA_RESULTS"].endswith("/project/results")
    assert (env["MINGORA_JOB_ID"], env["MINGORA_ATTEMPT"], env["MINGORA_RANK"]) == (job.id, "1", "0")
    assert not {"MINGORA_TOKEN", "MINGORA_URL", "AWS_SECRET_ACCESS_KEY"} & set(env)
    assert platform.user_token not in bytes(job.lease.log).decode()


@pytest.mark.req("JOB-7")
@pytest.mark.parametrize(
    ("command", "code", "reason", "exit_code", "signal"),
    [
        (["sh", "-c", "exit 137"], "exit_code", "137", 137, None),
        (["sh", "-c", "kill -9 $$"], "signal", "9", None, 9),
        (["no-such-command"], "command_not_found", "no-such-command", None, None),
        (["./main.txt"], "command_not_found", "main.txt", None, None),
    ],
)
def test_how_a_command_ended_is_told_exactly(
    platform: FakePlatform,
    start_worker: StartWorker,
    command: list[str],
    code: str,
    reason: str,
    exit_code: int | None,
    signal: int | None,
) -> None:
    job = platform.submit(command, {"main.txt": b"not executable"})
    start_worker("--once").wait()
    report = platform.report(job)
    assert (report["outcome"], report["reason"]["code"]) == ("failed", code)
    assert reason in report["reason"]["message"]
    assert (report["exitCode"], report["signal"]) == (exit_code, signal)


@pytest.mark.req("WORK-6")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)", bytes(range(256)) * 3),
        ("print('no newline', end='')", b"no newline"),
        ("import sys; sys.stdout.write('x' * 10_000_000 + '\\n')", b"x" * 10_000_000 + b"\n"),
        ("import sys; print('a', flush=True); print('b', file=sys.stderr, flush=True); print('c')", b"a\nb\nc\n"),
    ],
    ids=["binary", "no newline", "a line of 10 MB", "both streams"],
)
def test_a_log_arrives_byte_for_byte(
    platform: FakePlatform, start_worker: StartWorker, code: str, expected: bytes
) -> None:
    job = platform.submit(["python", "-c", code])
    platform.lose["logs"] = 1  # stored, but the answer is lost: the bytes come again and must not double
    start_worker("--once").wait()
    assert platform.report(job)["logBytes"] == len(expected)
    assert bytes(job.lease.log) == expected


@pytest.mark.req("WORK-6")
def test_a_log_over_its_cap_is_cut_and_marked(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.log_cap = 100_000
    job = platform.submit(["python", "-c", "print('y' * 300_000)"])
    start_worker("--once").wait()
    assert platform.report(job)["outcome"] == "succeeded"
    assert bytes(job.lease.log) == b"y" * 100_000
    assert job.lease.truncated


@pytest.mark.req("WORK-6", "JOB-9")
def test_the_log_follows_while_the_job_runs(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["python", "-c", "import time; print('now', flush=True); time.sleep(60)"])
    start_worker()
    platform.wait(lambda: job.leases and bytes(job.lease.log) == b"now\n")
    assert job.lease.report is None


@pytest.mark.req("WORK-4")
def test_cancel_ends_the_tree_and_keeps_log_and_results(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("results/half.txt", "w").write("half")
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.environ.clear()
    os.write(1, f"{os.getpid()}\\n".encode())
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"], {})
os.wait()
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(60)
"""
    job = platform.submit(["python", "-c", code])
    start_worker()
    platform.wait(lambda: job.leases and bytes(job.lease.log).count(b"\n") == 2)
    pids = [int(word) for word in bytes(job.lease.log).split()]
    assert all(alive(pid) for pid in pids)
    asked = time.monotonic()
    platform.cancel(job, grace=0.5)
    report = platform.report(job)
    assert time.monotonic() - asked < 5
    assert (report["outcome"], report["reason"]["code"], report["signal"]) == ("cancelled", "cancelled", 9)
    assert not any(alive(pid) for pid in pids)
    assert platform.results(job) == {"half.txt": b"half"}


@pytest.mark.req("WORK-4")
def test_what_outlives_the_command_is_ended(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True); print(p.pid)"
    job = platform.submit(["python", "-c", code])
    start_worker("--once").wait()
    assert platform.report(job)["outcome"] == "succeeded"
    assert not alive(int(bytes(job.lease.log)))


@pytest.mark.req("WORK-4")
def test_a_job_over_its_memory_is_stopped(platform: FakePlatform, start_worker: StartWorker) -> None:
    hog = "import time; block = b'x' * 200_000_000; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hog!r}])"
    job = platform.submit(["python", "-c", code], resources={"memoryMiB": 128})
    start_worker("--once").wait()
    report = platform.report(job)
    assert report["reason"]["code"] == "memory_exceeded"
    assert report["usage"]["maxMemoryMiB"] > 128


@pytest.mark.req("WORK-4", "JOB-6")
def test_a_job_too_short_to_be_looked_at_has_used_memory(platform: FakePlatform, start_worker: StartWorker) -> None:
    large = platform.submit(["python", "-c", "import os; block = b'x' * 300_000_000; os._exit(0)"])
    small = platform.submit(["true"])
    worker = start_worker()
    # 286 MiB and the interpreter; the kernel counts by rounds, and a process that ends in the middle of one has less.
    assert platform.report(large)["usage"]["maxMemoryMiB"] >= 200
    assert 1 <= platform.report(small)["usage"]["maxMemoryMiB"] < 20
    worker.close()


@pytest.mark.req("WORK-4", "JOB-7")
def test_a_cancel_isnt_held_up_by_results_on_their_way(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.slow_parts = 0.3
    write = "for i in $(seq 400); do echo $i > results/$i; done"
    job = platform.submit(["sh", "-c", write])
    start_worker()
    platform.wait(lambda: platform.count("parts") > 4)
    asked = time.monotonic()
    platform.cancel(job)
    report = platform.report(job)
    assert time.monotonic() - asked < 10  # all of them would take 15 s
    assert (report["outcome"], report["reason"]["code"], report["results"]) == ("cancelled", "cancelled", [])


@pytest.mark.req("WORK-4")
def test_cpu_time_of_ended_children_counts(platform: FakePlatform, start_worker: StartWorker) -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    code = f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', {burn!r}])"
    job = platform.submit(["python", "-c", code])
    start_worker("--once").wait()
    assert 0.8 <= platform.report(job)["usage"]["cpuSeconds"] < 4


def test_a_job_over_its_time_is_stopped(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["sleep", "60"], timeoutSeconds=1)
    start_worker("--once").wait()
    assert platform.report(job)["reason"]["code"] == "timed_out"


@pytest.mark.req("WORK-3")
def test_corrupt_inputs_never_start(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["touch", "results/ran"], {"a.bin": b"good"})
    platform.content[job.inputs[0]["objectId"]] = b"evil"
    start_worker("--once").wait()
    report = platform.report(job)
    assert (report["outcome"], report["reason"]["code"], report["results"]) == ("failed", "input_corrupt", [])


@pytest.mark.req("WORK-3")
def test_inputs_that_the_system_has_no_names_for_never_start(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["true"], {"中.bin": b"good"})
    worker = start_worker("--once", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert worker.wait() == 0
    assert "C.UTF-8" in platform.report(job)["reason"]["message"]


@pytest.mark.req("WORK-3")
def test_another_list_of_inputs_never_starts(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["true"], {"a.bin": b"good"})
    job.inputs[0]["path"] = "../a.bin"
    start_worker("--once").wait()
    assert platform.report(job)["reason"]["code"] == "input_corrupt"


@pytest.mark.req("WORK-3", "BLOB-7")
def test_results_over_the_quota_fail_the_job_and_name_the_remedy(
    platform: FakePlatform, start_worker: StartWorker
) -> None:
    platform.max_results = 10
    job = platform.submit(["sh", "-c", "echo 12345678901 > results/big; echo 1 > results/fits; : > results/empty"])
    start_worker("--once").wait()
    reason = platform.report(job)["reason"]
    assert [entry["path"] for entry in platform.report(job)["results"]] == ["empty", "fits"]
    assert reason["code"] == "quota_exceeded"
    assert "mingora rm" in reason["message"]


@pytest.mark.req("WORK-3")
def test_refused_results_leave_the_good_ones(platform: FakePlatform, start_worker: StartWorker) -> None:
    command = "cd results && echo ok > good && ln -s /etc/passwd link && mkfifo pipe && mkdir -m 0 shut"
    command += " && cp good h1 && ln h1 h2"
    job = platform.submit(["sh", "-c", command])
    worker = start_worker("--once")
    worker.wait()
    report = platform.report(job)
    assert report["outcome"] == "succeeded"
    assert platform.results(job) == {"good": b"ok\n"}
    assert sorted(w.split(":")[0] for w in report["warnings"] if not w.startswith("shut")) == [
        "h1",
        "h2",
        "link",
        "pipe",
    ]
    assert list((worker.root / "jobs").iterdir()) == []


@pytest.mark.req("JOB-4")
def test_a_refused_report_is_followed_by_one_without_results(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.refuse["report"] = [Refusal(400, "invalid_request", field="results")]
    job = platform.submit(["sh", "-c", "echo ok > results/good"])
    start_worker("--once").wait()
    report = platform.report(job)
    assert (report["outcome"], report["reason"]["code"], report["results"]) == ("failed", "result_refused", [])


@pytest.mark.req("WORK-5")
def test_heartbeats_go_on_while_the_job_uses_all_cpus(platform: FakePlatform, start_worker: StartWorker) -> None:
    platform.ttl = 8.0  # a heartbeat in two seconds; three missed ones would end the lease
    code = "import multiprocessing as m, time\ndef f():\n while True: pass\n"
    code += "if __name__ == '__main__':\n [m.Process(target=f, daemon=True).start() for _ in range(8)]\n time.sleep(5)"
    job = platform.submit(["python", "burn.py"], {"burn.py": code.encode()})
    start_worker("--once").wait()
    assert platform.report(job)["outcome"] == "succeeded"
    beats = job.lease.beats
    assert max(b - a for a, b in itertools.pairwise(beats)) < 4
    assert len(beats) < 12


def test_json_events_name_no_secret(platform: FakePlatform, start_worker: StartWorker) -> None:
    job = platform.submit(["true"])
    worker = start_worker("--once")
    worker.wait()
    said = json.dumps(worker.events) + "".join(worker.other)
    secrets = [platform.user_token, job.lease.token, *platform.node_tokens]
    assert worker.named("job_ended")[0]["outcome"] == "succeeded"
    assert not any(secret in said for secret in secrets)


def test_the_job_gets_a_lower_priority_and_its_own_session(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = "import os; print(os.nice(0), os.getsid(0) == os.getpid(), os.environ['TMPDIR'])"
    job = platform.submit(["python", "-c", code])
    worker = start_worker("--once")
    worker.wait()
    nice, leader, tmp = bytes(job.lease.log).decode().split()
    assert int(nice) >= os.nice(0) + 5 or os.nice(0) >= 15
    assert (leader, Path(tmp).parent.parent) == ("True", worker.root / "jobs")
