"""Everything that keeps a job in its container, one entry a measure, as arguments of the SDK's `containers.create`.

Nothing here is a choice of the job. docs/security.md says what each of them is against; a test takes each away in turn
and shows the hostile job that gets through then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

HOME = "/mingora"
PROJECT = f"{HOME}/project"
RESULTS = f"{PROJECT}/results"
DATA = f"{HOME}/data"
PIPE = f"{HOME}/log"
UNSTARTED = "mingora: not started"
TMP = "/tmp"  # noqa: S108 (the container's)
MIB = 1 << 20
# What programs expect to find, and what a job may set otherwise.
HOME_VARIABLES = {"HOME": TMP, "TMPDIR": TMP, "USER": "mingora", "LOGNAME": "mingora", "PYTHONUNBUFFERED": "1"}
# As much as engines that were started with the limits of older systems can give.
OPEN_FILES = 16_384
LOCKED_BYTES = 8 * MIB
TMP_INODES = 65_536
# Beside a worker and its machine's own programs, the kernel takes a job's processes first when memory runs out.
OOM_SCORE = 500
# Sends the job's output into the pipe and becomes the command. The job doesn't inherit the container's own output; the
# trap runs only where the command can't be started.
INTO_PIPE = f"""exec >{PIPE} 2>&1
trap 'echo {UNSTARTED} >/proc/1/fd/1' EXIT
exec "$@"
"""


@dataclass(frozen=True)
class Box:
    """One container. `output` is where results go, a mount at RESULTS; `output_bytes` its quota.

    `memory_mib` is all the job gets, what it writes to /tmp and /dev/shm included: `scratch_mib` is the most in either.
    `pids` counts threads as well. `pipe` takes the job's output, None where the engine's machine is another.
    """

    name: str
    labels: Mapping[str, str]
    user: str
    memory_mib: int
    scratch_mib: int
    cpus: int
    pids: int
    project: Path
    output: Mount
    output_bytes: int
    pipe: Path | None
    env: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Path] = field(default_factory=dict)
    gpu_index: int | None = None
    host_network: bool = False
    user_namespaces: bool = False


@cache
def seccomp_profile() -> str:
    """The profile's JSON; devtools/seccomp.py makes it."""
    return Path(__file__).with_name("seccomp.json").read_text("utf-8")


def _ulimit(name: str, most: int) -> dict[str, Any]:
    return {"ulimits": [Ulimit(name=name, soft=most, hard=most)]}


def _bind(source: Path, target: str) -> dict[str, Any]:
    """Read-only, without what is mounted below: engines before Docker 25 leave that writable."""
    mount = Mount(target, str(source), type="bind", read_only=True, propagation="rprivate")
    mount["BindOptions"]["NonRecursive"] = True
    return {"mounts": [mount]}


def _gpu(box: Box) -> dict[str, Any]:
    """The one GPU, or none, also where NVIDIA's runtime is the engine's default and reads the environment.

    An index is one number: a list in one string would grant them all.
    """
    if box.gpu_index is None:
        return {"environment": {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": ""}}
    index = str(int(box.gpu_index))
    env = {"NVIDIA_VISIBLE_DEVICES": index, "CUDA_VISIBLE_DEVICES": "0"}
    env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    request = DeviceRequest(driver="nvidia", device_ids=[index], capabilities=[["gpu", "compute", "utility"]])
    return {"device_requests": [request], "environment": env}


def _log(box: Box) -> dict[str, Any]:
    """The engine keeps nothing of what a container writes: a flood would cost its CPU and disk, not the job's."""
    pipe = {} if box.pipe is None else _bind(box.pipe, PIPE)
    return {"log_config": LogConfig(type="none"), **pipe}


def _network(box: Box) -> dict[str, Any]:
    """None, or the host's and then its name as well, which libraries that look for peers resolve."""
    return {"network_mode": "host"} if box.host_network else {"network_mode": "none", "hostname": "mingora"}


def _data(box: Box) -> dict[str, Any]:
    return {"mounts": [m for name, path in box.data.items() for m in _bind(path, f"{DATA}/{name}")["mounts"]]}


HARDENINGS: dict[str, Callable[[Box], dict[str, Any]]] = {
    "entrypoint": lambda _box: {"entrypoint": []},
    "healthcheck": lambda _box: {"healthcheck": {"test": ["NONE"]}},
    "labels": lambda box: {"name": box.name, "labels": dict(box.labels)},
    "user": lambda box: {"user": box.user},
    "userns": lambda box: {"userns_mode": "host"} if box.user_namespaces else {},
    "init": lambda _box: {"init": True, "environment": {"TINI_VERBOSITY": "2", "TINI_KILL_PROCESS_GROUP": "1"}},
    "read-only": lambda _box: {"read_only": True},
    "network": _network,
    "ipc": lambda _box: {"ipc_mode": "private"},
    "cgroupns": lambda _box: {"cgroupns": "private"},
    "capabilities": lambda _box: {"cap_drop": ["ALL"]},
    "no-new-privileges": lambda _box: {"security_opt": ["no-new-privileges:true"]},
    "seccomp": lambda _box: {"security_opt": [f"seccomp={seccomp_profile()}"]},
    "memory": lambda box: {"mem_limit": box.memory_mib * MIB},
    "swap": lambda box: {"memswap_limit": box.memory_mib * MIB},
    "oom-score": lambda _box: {"oom_score_adj": OOM_SCORE},
    "cpu": lambda box: {"nano_cpus": box.cpus * 1_000_000_000},
    "pids": lambda box: {"pids_limit": box.pids},
    "tmp": lambda box: {
        "tmpfs": {TMP: f"rw,exec,nosuid,nodev,mode=1777,size={box.scratch_mib}m,nr_inodes={TMP_INODES}"}
    },
    "shm": lambda box: {"shm_size": box.scratch_mib * MIB},
    "nofile": lambda _box: _ulimit("nofile", OPEN_FILES),
    "core": lambda _box: _ulimit("core", 0),
    "fsize": lambda box: _ulimit("fsize", max(box.output_bytes, box.scratch_mib * MIB)),
    "memlock": lambda _box: _ulimit("memlock", LOCKED_BYTES),
    "msgqueue": lambda _box: _ulimit("msgqueue", 0),
    "project": lambda box: _bind(box.project, PROJECT),
    "output": lambda box: {"mounts": [box.output]},
    "data": _data,
    "log": _log,
    "keep": lambda _box: {"auto_remove": False, "restart_policy": {"Name": "no"}},
    "gpu": _gpu,
}


def arguments(box: Box) -> dict[str, Any]:
    """What `containers.create` gets besides image and command. The platform's variables win over the job's."""
    merged: dict[str, Any] = {
        "working_dir": PROJECT,
        "detach": True,
        "environment": dict(box.env),
    }
    for measure in HARDENINGS.values():
        for name, value in measure(box).items():
            if isinstance(value, list) and name in merged:
                merged[name] = merged[name] + value
            elif isinstance(value, dict) and isinstance(merged.get(name), dict):
                merged[name] = {**merged[name], **value}
            else:
                merged[name] = value
    return merged


def command(box: Box, words: list[str]) -> list[str]:
    """What the container runs so that the job's command runs in it."""
    return words if box.pipe is None else ["/bin/sh", "-c", INTO_PIPE, "mingora", *words]
