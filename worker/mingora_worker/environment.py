"""The environment variables of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from mingora_worker.api import Grant
from mingora_worker.runtimes.base import Launch

# What a native job gets to see of the environment the worker was started in. Everything else could be a credential.
KEPT = frozenset(
    [
        *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES"),
        *("USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA"),
        *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
    ]
)
KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "MKL_")


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the worker's environment that a job inherits: an allowlist, nothing of Mingora's own."""
    return {
        name: value
        for name, value in environ.items()
        if (name.upper() in KEPT or name.upper().startswith(KEPT_PREFIXES)) and "MINGORA" not in name.upper()
    }


def native_environment(launch: Launch, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a rank gets that runs as processes of this account: the allowlist, the job's `env`, the platform's names.

    No credential is in it. A job without a GPU sees none; one with a GPU sees the worker's alone, counted in the
    order of the bus as nvidia-smi does.
    """
    env = base_environment(os.environ if environ is None else environ)
    for name in ("TMPDIR", "TEMP", "TMP") if sys.platform == "win32" else ("TMPDIR",):
        env[name] = str(launch.folder.tmp)
    env["PYTHONUNBUFFERED"] = "1"
    env.update(own_variables(launch.grant))
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["CUDA_VISIBLE_DEVICES"] = str(launch.gpu_index) if wants_gpu(launch) else ""
    places = {name: str(path) for name, path in launch.data.items()}
    env.update(platform_variables(launch.grant, results=str(launch.folder.project / "results"), data=places))
    return env


def own_variables(grant: Grant) -> dict[str, str]:
    """The job's own `env`, without names that are the platform's."""
    return {k: str(v) for k, v in _dict(grant.spec, "env").items() if not k.upper().startswith("MINGORA_")}


def platform_variables(grant: Grant, *, results: str, data: Mapping[str, str]) -> dict[str, str]:
    """The platform's names (CLI-7). `results` and `data`: where the rank finds them."""
    env = {
        "MINGORA_JOB_ID": grant.job_id,
        "MINGORA_ATTEMPT": str(grant.attempt),
        "MINGORA_RANK": str(grant.rank),
        "MINGORA_RANKS": str(grant.ranks),
        "MINGORA_RESULTS": results,
    }
    for name in grant.spec.get("data") or []:
        if name in data:
            env[f"MINGORA_DATA_{name}"] = data[name]
    rendezvous = _dict(grant.spec, "rendezvous")
    if rendezvous:
        env["MINGORA_RENDEZVOUS_HOST"] = str(rendezvous["host"])
        env["MINGORA_RENDEZVOUS_PORT"] = str(rendezvous["port"])
    return env


def wants_gpu(launch: Launch) -> bool:
    """Whether the rank asks for a GPU and this worker has one for it."""
    return launch.gpu_index is not None and launch.resources.get("gpu", 0) == 1


def _dict(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    return spec.get(name) or {}
