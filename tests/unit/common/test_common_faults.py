"""Fault points: nothing without the setting, refused outside tests, one shot each."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mingora_common import faults
from mingora_common.config import ConfigError, Env

PROGRAM = """
from mingora_common import faults
faults.entered("api.jobs.submit")
faults.point("commit.after")
faults.point("commit.after")
print("alive")
"""


def run(folder: Path | None) -> subprocess.CompletedProcess[str]:
    env = {} if folder is None else {faults.SETTING: str(folder)}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=30)


@pytest.mark.req("OPS-2")
def test_nothing_ends_without_the_setting() -> None:
    assert run(None).stdout == "alive\n"


@pytest.mark.req("OPS-2")
def test_an_armed_point_ends_the_process_once(tmp_path: Path) -> None:
    (tmp_path / faults.RECORD).touch()
    (tmp_path / "api.jobs.submit@commit.after#2").touch()
    assert run(tmp_path).returncode == -signal.SIGKILL
    assert run(tmp_path).stdout == "alive\n"
    passed = (tmp_path / faults.RECORD).read_text().splitlines()
    assert passed[:3] == ["api.jobs.submit@begun#1", "api.jobs.submit@commit.after#1", "api.jobs.submit@commit.after#2"]


@pytest.mark.req("OPS-2")
def test_another_process_can_be_the_victim(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    (tmp_path / "api.jobs.submit@begun#1").write_text(str(victim.pid))
    assert run(tmp_path).stdout == "alive\n"
    assert victim.wait(10) == -signal.SIGKILL


@pytest.mark.req("OPS-2")
def test_services_refuse_to_start_with_faults_outside_tests() -> None:
    with pytest.raises(ConfigError, match=faults.SETTING):
        Env({faults.SETTING: "/tmp/faults"}).check()
    Env({faults.SETTING: "/tmp/faults", faults.TESTING: "1"}).check()
