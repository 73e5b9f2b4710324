"""The machine's facts and the lock of a GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mingora_worker import machine
from mingora_worker.machine import Gpu, MachineProblem, describe, find_gpu, fingerprint, lock_gpu, machine_id

GPU = Gpu(0, "GPU-7c5c3a2e-0000", "Test", 1000)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the driver's program, which machines without a GPU lack; the test writes its script."""
    script = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    return script


def test_a_machine_is_described() -> None:
    found = describe(None)
    assert re.fullmatch(r"[0-9a-f]{32}", found.machine_id)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", found.fingerprint)
    assert found.cpu >= 1
    assert found.memory_mib > 100
    assert found.platform.startswith({"linux": "linux-", "darwin": "darwin-"}.get(sys.platform, "windows-"))
    assert found.gpu is None


@pytest.mark.req("JOB-6")
def test_the_machine_id_is_stable_and_not_the_systems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "machine-id"
    system.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(machine, "_ID_FILES", (str(system),))
    assert machine_id() == machine_id()
    assert machine_id() != system.read_text().strip()


@pytest.mark.req("JOB-6")
@pytest.mark.parametrize("damage", [None, "", "not an id"])
def test_a_machine_without_an_id_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str | None) -> None:
    monkeypatch.setattr(machine, "_ID_FILES", ())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    if damage is not None:
        (tmp_path / ".mingora-machine-id").write_text(damage)
    assert re.fullmatch(r"[0-9a-f]{32}", machine_id())
    assert machine_id() == machine_id()


@pytest.mark.req("JOB-5")
def test_the_fingerprint_changes_with_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    assert fingerprint() == before
    for name in ("mingora_worker", "Some.Package"):
        info = tmp_path / f"{name}-9.9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert (fingerprint() == before) == (name == "mingora_worker")


@pytest.mark.req("JOB-6")
def test_a_gpu_is_described_by_nvidia_smi(nvidia_smi: Path) -> None:
    nvidia_smi.write_text('#!/bin/sh\ncase "$*" in *--id=1*) echo "GPU-abc, NVIDIA H200, 143771";; *) exit 6;; esac\n')
    nvidia_smi.chmod(0o755)
    assert find_gpu(1) == Gpu(1, "GPU-abc", "NVIDIA H200", 143771)
    with pytest.raises(MachineProblem, match="no GPU 2"):
        find_gpu(2)


def test_a_missing_driver_is_named(nvidia_smi: Path) -> None:
    with pytest.raises(MachineProblem, match="nvidia-smi") as caught:
        find_gpu(0)
    assert caught.value.hint is not None


@pytest.mark.req("JOB-6")
def test_one_worker_a_gpu(tmp_path: Path) -> None:
    held = lock_gpu(GPU, tmp_path)
    with pytest.raises(MachineProblem, match="GPU 0"):
        lock_gpu(GPU, tmp_path)
    lock_gpu(Gpu(1, "GPU-other", "Test", 1000), tmp_path).close()
    held.close()
    lock_gpu(GPU, tmp_path).close()
    (lock,) = tmp_path.glob("*7c5c*")
    assert lock.stat().st_mode & 0o777 == 0o644


@pytest.mark.req("JOB-6")
def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / f"mingora-{GPU.uuid}.lock").symlink_to(victim)
    with pytest.raises(MachineProblem):
        lock_gpu(GPU, tmp_path)
    assert not victim.exists()
