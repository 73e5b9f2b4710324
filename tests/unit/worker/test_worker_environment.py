"""A job's environment: what it gets, and what it must never see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mingora_worker.api import Grant
from mingora_worker.environment import base_environment, native_environment
from mingora_worker.runtimes.base import Launch
from mingora_worker.state import JobFolder

OURS = {
    "PATH": "/bin",
    "HOME": "/home/ada",
    "LC_ALL": "tr_TR.UTF-8",
    "LD_LIBRARY_PATH": "/opt/lib",
    "CUDA_HOME": "/opt/cuda",
    "MINGORA_TOKEN": "mgu_secret",
    "mingora_url": "x",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "PYTHONPATH": "/elsewhere",
}


def env(gpu_index: int | None = None, **spec: Any) -> dict[str, str]:
    grant = Grant("lease_1", 2, "job_1", 1, 4, "mgl_secret", 60, 1, {"command": ["x"], **spec}, [], "")
    folder = JobFolder(Path("/root-of-worker/jobs/lease_1"))
    data = {"SET": Path("/data/set"), "OTHER": Path("/data/other")}
    return native_environment(Launch(grant, folder, "mark", data, gpu_index), OURS)


@pytest.mark.req("WORK-2", "WORK-7")
def test_only_an_allowlist_is_inherited() -> None:
    assert base_environment(OURS) == {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "LC_ALL": "tr_TR.UTF-8",
        "LD_LIBRARY_PATH": "/opt/lib",
        "CUDA_HOME": "/opt/cuda",
    }
    assert not any("secret" in value for value in env().values())


def test_what_the_platform_says() -> None:
    found = env()
    names = ("MINGORA_JOB_ID", "MINGORA_ATTEMPT", "MINGORA_RANK", "MINGORA_RANKS", "PYTHONUNBUFFERED")
    assert [found[name] for name in names] == ["job_1", "2", "1", "4", "1"]
    assert found["MINGORA_RESULTS"] == "/root-of-worker/jobs/lease_1/project/results"
    assert found["TMPDIR"] == "/root-of-worker/jobs/lease_1/tmp"
    assert "MINGORA_RENDEZVOUS_HOST" not in found


def test_the_jobs_own_variables_win_but_not_over_the_platforms() -> None:
    found = env(env={"PATH": "/opt/bin", "MINGORA_RANK": "9", "Mingora_X": "y", "CUDA_VISIBLE_DEVICES": "0,1"})
    assert (found["PATH"], found["MINGORA_RANK"], found["CUDA_VISIBLE_DEVICES"]) == ("/opt/bin", "1", "")
    assert "Mingora_X" not in found


@pytest.mark.req("WORK-8")
def test_only_the_data_that_was_asked_for() -> None:
    found = env(data=["SET"])
    assert found["MINGORA_DATA_SET"] == "/data/set"
    assert "MINGORA_DATA_OTHER" not in found


@pytest.mark.req("JOB-6")
@pytest.mark.parametrize(("index", "wanted", "visible"), [(1, 1, "1"), (1, 0, ""), (None, 1, ""), (0, 1, "0")])
def test_a_gpu_is_seen_only_when_asked_for(index: int | None, wanted: int, visible: str) -> None:
    found = env(gpu_index=index, resources={"gpu": wanted})
    assert found["CUDA_VISIBLE_DEVICES"] == visible
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.req("DIST-1")
def test_the_rendezvous_is_passed_on() -> None:
    found = env(rendezvous={"host": "10.0.0.1", "port": 29500})
    assert (found["MINGORA_RENDEZVOUS_HOST"], found["MINGORA_RENDEZVOUS_PORT"]) == ("10.0.0.1", "29500")
