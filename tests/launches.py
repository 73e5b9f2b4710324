"""Launches for tests that drive a runtime themselves, without a platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mingora_worker.api import Grant
from mingora_worker.runtimes.base import Launch
from mingora_worker.state import JobFolder

LOG_CAP = 100 << 20


def launch(
    folder: Path,
    command: Sequence[str],
    *,
    mark: str = "mark",
    lease: str = "lease_1",
    log_cap: int = LOG_CAP,
    data: Mapping[str, Path] | None = None,
    gpu_index: int | None = None,
    **spec: Any,
) -> Launch:
    """One rank of a job with ``command`` and the other members of ``spec``; its folders are made below ``folder``."""
    grant = Grant(lease, 1, "job_1", 0, 1, "mgl_secret", 60, log_cap, {"command": list(command), **spec}, [], "")
    job = JobFolder(folder)
    job.create()
    return Launch(grant, job, mark, data or {}, gpu_index)
