"""Processes and pipes as the system really gives them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from launches import launch
from service.worker.fake_platform import FakePlatform
from service.worker.worker_process import StartWorker

from mingora_worker.logs import Pump, Spool
from mingora_worker.monitor import MARK, ProcessTree, kill_all, leftovers
from mingora_worker.runtimes.base import StartFailed
from mingora_worker.runtimes.native import NativeRuntime
from mingora_worker.state import ProcessId

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX processes")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the marker `ours`."""
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "ours"})
    yield process
    process.kill()
    process.wait()


@pytest.mark.req("WORK-4")
def test_leftovers_are_known_by_marker_or_by_number_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    pid, created = sleeper.pid, psutil.Process(sleeper.pid).create_time()
    assert [p.pid for p in leftovers("ours", [])] == [pid]
    assert [p.pid for p in leftovers("other", [ProcessId(pid, created)])] == [pid]
    assert leftovers("other", [ProcessId(pid, created - 60)]) == []  # the number alone is another process
    assert leftovers("", []) == []


@pytest.mark.req("WORK-4")
def test_leftovers_bring_their_children() -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    known = ProcessId(parent.pid, psutil.Process(parent.pid).create_time())
    assert {p.pid for p in leftovers("none", [known])} == {parent.pid, child}
    assert kill_all(lambda: leftovers("none", [known]))
    parent.wait(5)
    parent.stdout.close()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_tree_leaves_earlier_children_of_the_worker_alone(sleeper: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree("another", adopting=True)
    assert sleeper.pid not in {p.pid for p in tree.members()}
    assert tree.kill()
    assert sleeper.poll() is None


COMET = """
import os, time
end = time.monotonic() + 5
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.mark.req("WORK-4")
@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a worker adopts orphans")
def test_a_process_that_forks_and_ends_over_and_over_is_ended(tmp_path: Path) -> None:
    """None of its processes is still there by the time that the list of all processes has been read."""
    others = set(psutil.Process().children())
    running = NativeRuntime().start(launch(tmp_path, [sys.executable, "-c", COMET], mark="comet"))
    assert running.wait(10) is not None
    assert running.kill()
    with running.output:
        assert running.output.read() == b""  # each of them held the pipe
    assert set(psutil.Process().children()) <= others  # and no zombie is left


@pytest.mark.req("WORK-4")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system keeps the time of a process's start")
@pytest.mark.parametrize("step", [86_400, -86_400])
def test_a_clock_that_is_set_changes_neither_a_jobs_processes_nor_its_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    greedy = "import time; kept = bytearray(b'x') * (60 << 20); time.sleep(60)"
    command = ["sh", "-c", 'sleep 60 & echo $!; exec "$0" -c "$1"', sys.executable, greedy]
    running = NativeRuntime().start(launch(tmp_path, command, mark="clock"))
    with running.output:
        child = int(running.output.readline())
        until = time.monotonic() + 10
        while (before := running.sample().memory_mib) < 60:
            assert time.monotonic() < until
            time.sleep(0.05)
        started = psutil.boot_time()
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: started + step)
        assert running.sample().memory_mib <= before + 30  # nothing counts twice
        assert child in {process.pid for process in running.processes()}
        assert running.kill()
        assert not running.alive()


@pytest.mark.req("WORK-6")
def test_a_pipe_that_an_outsider_keeps_open_is_not_waited_for(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    spool = Spool(tmp_path / "log", 100)
    os.write(writing, b"said")
    pump = Pump(os.fdopen(reading, "rb", buffering=0), spool)
    since = time.monotonic()
    pump.finish(0.2)
    assert time.monotonic() - since < 2
    assert (spool.sealed, spool.read(0)) == (True, b"said")
    os.close(writing)
    pump.finish(5)
    spool.close()


@pytest.mark.req("WORK-2")
def test_a_command_is_never_read_by_a_shell(tmp_path: Path) -> None:
    with pytest.raises(StartFailed):
        NativeRuntime().start(launch(tmp_path, ["echo pwned > pwned"]))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.req("WORK-4")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PSS is Linux's")
def test_memory_that_processes_share_counts_once(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = "import os, time\nblock = b'x' * 150_000_000\n"
    code += "for _ in range(3):\n  if os.fork() == 0: time.sleep(1.5); os._exit(0)\n"
    code += "for _ in range(3): os.wait()"
    job = platform.submit(["python", "-c", code], resources={"memoryMiB": 256})
    start_worker("--once").wait()
    assert platform.report(job)["outcome"] == "succeeded"


@pytest.mark.req("WORK-6")
def test_the_workers_memory_stays_flat_under_a_long_log(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = "import sys\nfor _ in range(600): sys.stdout.write('z' * 99_999 + '\\n')\nimport time; time.sleep(60)"
    job = platform.submit(["python", "-c", code])
    worker = start_worker()
    platform.wait(lambda: job.leases and len(job.lease.log) == 60_000_000)
    assert psutil.Process(worker.process.pid).memory_info().rss < 100 * 1024 * 1024


@pytest.mark.req("WORK-4", "JOB-6")
def test_a_worker_started_by_something_large_knows_a_small_jobs_memory() -> None:
    worker = """
import os, subprocess, sys
from mingora_worker.monitor import ProcessTree
tree = ProcessTree("mark", adopting=False)
job = subprocess.Popen([sys.executable, "-c", "import os; block = b'x' * 120_000_000; os._exit(0)"])
_pid, _status, used = os.wait4(job.pid, 0)
tree.ended(used.ru_maxrss)
print(tree.sample().max_memory_mib)
"""
    large = f"import os, sys; block = b'x' * 250_000_000; os.execv(sys.executable, [sys.executable, '-c', {worker!r}])"
    shown = subprocess.run([sys.executable, "-c", large], capture_output=True, text=True, check=True).stdout
    assert 115 <= int(shown) < 200
