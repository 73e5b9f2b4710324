"""The command on a system whose encoding isn't UTF-8, where names and output can't have every character."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from service.cli.mingora_fake import TOKEN, FakePlatform

CLI = Path(__file__).parents[3] / "cli" / "mingora.py"
JOB = "job_00000001"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "MINGORA_LANG": "en"}

pytestmark = pytest.mark.skipif(os.name == "nt", reason="names of files are Unicode on Windows")


def run(platform: FakePlatform, *argv: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "MINGORA_URL": platform.url, "MINGORA_TOKEN": TOKEN, "HOME": "/nonexistent"}
    return subprocess.run([sys.executable, str(CLI), *argv], env=env | ASCII, capture_output=True, timeout=30)


@pytest.mark.req("CLI-12")
def test_json_is_json_in_any_encoding(platform: FakePlatform) -> None:
    platform.add_job(name="žluť 中", state="running")
    done = run(platform, "status", JOB, "--json")
    assert json.loads(done.stdout)["job"]["name"] == "žluť 中"


@pytest.mark.req("CLI-9", "CLI-12")
def test_a_name_that_the_system_cannot_have_is_refused_with_the_remedy(platform: FakePlatform, tmp_path: Path) -> None:
    platform.add_job(state="succeeded", attempt=1, results=[platform.result("中.txt", b"x")])
    done = run(platform, "download", JOB, "--output", str(tmp_path / "out"))
    assert done.returncode == 1
    assert b"C.UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
