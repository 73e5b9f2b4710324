"""How much of the machine one job's container gets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mingora_worker.disk import folder_bytes
from mingora_worker.machine import Machine

MIB = 1 << 20
# What the machine keeps for itself and the worker when a job names no memory: a tenth, within these bounds.
KEPT_MIB = (512, 8_192)
LEAST_MEMORY_MIB = 64
# The most under results/. What a job needs beside it belongs into /tmp, which is memory.
MOST_OUTPUT_BYTES = 32 << 30
LEAST_OUTPUT_BYTES = 16 * MIB
OUTPUT_INODES = 65_536
# Of the free disk at the job's start, when its output is reserved: little, as a machine's workers do so side by side.
# Who says how much a worker may have by --max-disk gives half of what is left of that.
DISK_SHARE, GIVEN_SHARE = 0.1, 0.5


@dataclass(frozen=True)
class Limits:
    """Of one job. `pids` counts threads as well."""

    memory_mib: int
    cpus: int
    pids: int
    output_bytes: int
    output_inodes: int


@dataclass(frozen=True)
class Allowance:
    """What a worker gives to jobs. `max_disk` in bytes, or None; `output_in_memory`: the output's quota is memory."""

    root: Path
    memory_mib: int
    cpus: int
    max_disk: int | None = None
    output_in_memory: bool = False

    @classmethod
    def of(cls, root: Path, machine: Machine, max_disk: int | None) -> Allowance:
        kept = min(max(machine.memory_mib // 10, KEPT_MIB[0]), KEPT_MIB[1])
        return cls(root, max(LEAST_MEMORY_MIB, machine.memory_mib - kept), machine.cpu, max_disk)

    def within(self, engine: Mapping[str, Any]) -> Allowance:
        """No more than the engine's machine has, by its own `info`: it may be another, or a virtual one."""
        memory = int(engine.get("MemTotal") or 0) // MIB
        cpus = int(engine.get("NCPU") or 0)
        return replace(
            self, memory_mib=min(self.memory_mib, memory or self.memory_mib), cpus=min(self.cpus, cpus or self.cpus)
        )

    def limits(self, resources: Mapping[str, Any]) -> Limits:
        """What a job with these `resources` (of job.json) gets."""
        memory = int(resources.get("memoryMiB") or self.memory_mib)
        cpus = min(int(resources.get("cpu") or self.cpus), self.cpus)
        # Libraries for numbers start some threads for each CPU in every process.
        pids = min(32_768, max(1_024, 256 * cpus))
        return Limits(memory, cpus, pids, self._output(memory), OUTPUT_INODES)

    def _output(self, memory_mib: int) -> int:
        room = shutil.disk_usage(self.root).free
        most = int(room * DISK_SHARE)
        if self.max_disk is not None:
            most = int(min(room, self.max_disk - folder_bytes(self.root)) * GIVEN_SHARE)
        if self.output_in_memory:  # and on the disk once it is collected
            most = min(room // 2 if self.max_disk is None else most, memory_mib * MIB // 2)
        most = min(MOST_OUTPUT_BYTES, most)
        return max(LEAST_OUTPUT_BYTES, most // MIB * MIB)
