"""A stack is backed up while it works, restored into a new folder, and is the platform that it was."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_support import RunningStack, User, environment, python_project

MAIN = """
import pathlib
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/all.bin").write_bytes(bytes(range(256)) * 20_000)
print("çıktı 输出")
"""
SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def admin(data: Path, *words: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "mingora_stack.admin", "--data", str(data), *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.mark.req("OPS-1", "OPS-2", "AUTH-9", "JOB-7")
def test_a_stack_is_backed_up_while_it_works_and_restored_elsewhere(
    new_stack: Callable[..., RunningStack], new_user: Callable[[Any], User], tmp_path: Path
) -> None:
    old, restored = new_stack(), new_stack()
    old.start()
    user = new_user(old)
    job_id = user.submit(python_project(tmp_path / "done", MAIN), "done")
    worker = user.worker()
    user.wait_for_state(job_id, "succeeded", seconds=60)
    running = user.submit(python_project(tmp_path / "slow", SLOW), "slow")
    user.wait_for_state(running, "running", seconds=60)

    archive = tmp_path / "backup.mingora"
    told = json.loads(admin(old.data, "export", str(archive), "--json"))
    assert told["parts"] > 0 and told["lostParts"] == 0
    assert "runs on" in admin(old.data, "import", str(archive), status=1)
    assert old.stop() == 0

    assert json.loads(admin(restored.data, "import", str(archive), "--json"))["rows"] == told["rows"]
    restored._port = old._port  # the same address: neither user nor worker logs in again
    restored.start()
    user.wait_for_state(running, "running", "failed", "queued", seconds=60)
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    (result,) = user.job(job_id)["results"]
    content = (tmp_path / "out" / result["path"]).read_bytes()
    assert content == bytes(range(256)) * 20_000 and hashlib.sha256(content).hexdigest() == result["sha256"]
    assert "çıktı 输出" in user.run("logs", job_id).stdout.decode()
    assert user.submit(python_project(tmp_path / "again", MAIN), "done2") != job_id

    user.run("cancel", running)
    user.wait_for_state(running, "cancelled", "failed", seconds=90)
    after = user.submit(python_project(tmp_path / "after", MAIN), "after")
    user.wait_for_state(after, "succeeded", seconds=90)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) is not None
    assert "platform.import" in admin(restored.data, "audit")
