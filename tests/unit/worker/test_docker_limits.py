"""How much of the machine a job in a container gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingora_worker.machine import Machine
from mingora_worker.runtimes.docker.limits import LEAST_OUTPUT_BYTES, MIB, MOST_OUTPUT_BYTES, Allowance


def allowance(tmp_path: Path, memory: int = 16_000, cpus: int = 8, max_disk: int | None = None) -> Allowance:
    return Allowance.of(tmp_path, Machine("m", "linux-x86_64", cpus, memory, "sha256:0", None), max_disk)


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(("machine", "job"), [(16_000, 14_400), (1_000, 488), (400, 64), (200_000, 191_808)])
def test_a_job_without_a_budget_leaves_the_machine_some_memory(tmp_path: Path, machine: int, job: int) -> None:
    assert allowance(tmp_path, machine).limits({}).memory_mib == job


@pytest.mark.req("WORK-7", "JOB-6")
def test_what_the_job_asks_for_is_what_it_gets(tmp_path: Path) -> None:
    found = allowance(tmp_path).limits({"memoryMiB": 300, "cpu": 2})
    assert (found.memory_mib, found.cpus, found.pids) == (300, 2, 1_024)
    assert allowance(tmp_path).limits({"cpu": 800}).cpus == 8
    assert allowance(tmp_path, cpus=64).limits({}).pids == 16_384
    assert allowance(tmp_path, cpus=500).limits({}).pids == 32_768


@pytest.mark.req("WORK-7")
def test_the_output_leaves_half_of_the_room(tmp_path: Path) -> None:
    limited = allowance(tmp_path, max_disk=100 * MIB).limits({})
    assert limited.output_bytes == 50 * MIB
    (tmp_path / "log").write_bytes(b"x" * 40 * MIB)
    assert allowance(tmp_path, max_disk=100 * MIB).limits({}).output_bytes == 30 * MIB
    assert allowance(tmp_path, max_disk=1).limits({}).output_bytes == LEAST_OUTPUT_BYTES
    assert allowance(tmp_path).limits({}).output_bytes <= MOST_OUTPUT_BYTES


@pytest.mark.req("WORK-7")
def test_an_output_in_memory_is_half_of_the_jobs(tmp_path: Path) -> None:
    from dataclasses import replace

    in_memory = replace(allowance(tmp_path), output_in_memory=True)
    assert in_memory.limits({"memoryMiB": 100}).output_bytes == 50 * MIB
    within = replace(allowance(tmp_path, max_disk=60 * MIB), output_in_memory=True)
    assert within.limits({"memoryMiB": 1_000}).output_bytes == 30 * MIB  # it is on the disk once it is collected
