"""One job through the real worker process: inputs, environment, log, results, exit, and every way to end early."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import StartWorker
from fake_platform import FakePlatform

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX signals")


@pytest.mark.req("WORK-2", "WORK-3", "WORK-6", "CLI-7")
def test_a_job_runs_and_its_log_and_results_arrive(platform: FakePlatform, start_worker: StartWorker) -> None:
    code = b"import pathlib\nprint('hello \xc3\xbc')\npathlib.Path('results/out.txt').write_text(open('data/\xc3\xa4.txt').read())\n"
    code += b"open('results/empty', 'w').close()\n"
    job = platform.submit(["python3", "main.py"], {"main.py": code, "data/ä.txt": b"content", "pkg/__init__.py": b""})
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
