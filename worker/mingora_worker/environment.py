"""The environment variables of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mingora_worker.api import Grant
from mingora_worker.runtimes.native import base_environment
from mingora_worker.state import JobFolder


def job_environment(
    grant: Grant,
    folder: JobFolder,
    *,
    data: Mapping[str, Path],
    gpu_index: int | None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What rank `grant.rank` gets: an allowlist of the worker's own, the job's `env`, and the platform's names.

    No credential is in it. A job without a GPU sees none; one with a GPU sees the worker's alone, counted in the
    order of the bus as nvidia-smi does.
    """
    spec = grant.spec
    env = base_environment(os.environ if environ is None else environ)
    for name in ("TMPDIR", "TEMP", "TMP") if sys.platform == "win32" else ("TMPDIR",):
        env[name] = str(folder.tmp)
    env["PYTHONUNBUFFERED"] = "1"
    env.update({k: str(v) for k, v in _dict(spec, "env").items() if not k.upper().startswith("MINGORA_")})
    wants_gpu = _dict(spec, "resources").get("gpu", 0) == 1 and gpu_index is not None
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["CUDA_VISIBLE_DEVICES"] = str(gpu_index) if wants_gpu else ""
    env.update(
        MINGORA_JOB_ID=grant.job_id,
        MINGORA_ATTEMPT=str(grant.attempt),
        MINGORA_RANK=str(grant.rank),
        MINGORA_RANKS=str(grant.ranks),
        MINGORA_RESULTS=str(folder.project / "results"),
    )
    for name in spec.get("data") or []:
        if name in data:
            env[f"MINGORA_DATA_{name}"] = str(data[name])
    rendezvous = _dict(spec, "rendezvous")
    if rendezvous:
        env["MINGORA_RENDEZVOUS_HOST"] = str(rendezvous["host"])
        env["MINGORA_RENDEZVOUS_PORT"] = str(rendezvous["port"])
    return env


def _dict(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    return spec.get(name) or {}
