"""What this machine is: identity, size, GPU, environment fingerprint, and the lock that gives a GPU to one worker."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import stat
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import psutil

from mingora.errors import MingoraError
from mingora_worker.state import try_lock
from mingora_worker.texts import _

_SALT = b"mingora machine id v1\0"
_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_OWN = frozenset({"mingora", "mingora-worker"})
_SMI_SECONDS = 30


class MachineProblem(MingoraError):
    """The machine doesn't offer what was asked for."""


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_mib: int

    def as_json(self) -> dict[str, Any]:
        return {"index": self.index, "uuid": self.uuid, "name": self.name, "memoryMiB": self.memory_mib}


@dataclass(frozen=True)
class Machine:
    machine_id: str
    platform: str
    cpu: int
    memory_mib: int
    fingerprint: str
    gpu: Gpu | None


def describe(gpu_index: int | None) -> Machine:
    """Looks at this machine. Raises `MachineProblem` when the GPU isn't there."""
    return Machine(
        machine_id=machine_id(),
        platform=f"{platform.system().lower()}-{platform.machine().lower()}",
        cpu=_cpus(),
        memory_mib=_memory_mib(),
        fingerprint=fingerprint(),
        gpu=None if gpu_index is None else find_gpu(gpu_index),
    )


def machine_id() -> str:
    """The same for every worker on this machine: a salted hash of the system's id, or a number made once.

    The system's own id isn't told: it would link this machine across services.
    """
    for name in _ID_FILES:
        try:
            text = Path(name).read_text("ascii").strip()
        except (OSError, ValueError):
            continue
        if len(text) >= 32:
            return hashlib.sha256(_SALT + text.encode()).hexdigest()[:32]
    return _made_id(Path.home() / ".mingora-machine-id")


def _made_id(path: Path) -> str:
    for _attempt in range(2):
        try:
            text = path.read_text("ascii").strip()
            if re.fullmatch(r"[0-9a-f]{32}", text):
                return text
        except (OSError, ValueError):
            pass
        try:
            with path.open("x" if not path.exists() else "w", encoding="ascii") as file:
                file.write(secrets.token_hex(16) + "\n")
        except FileExistsError:
            continue
        except OSError as error:
            raise MachineProblem(
                _("{path} can't be written: {reason}").format(path=path, reason=error.strerror)
            ) from error
    return path.read_text("ascii").strip()


def fingerprint() -> str:
    """`sha256:` of what decides how Python code behaves here, one fact a line, in UTF-8, sorted within the last group:

    1. implementation and version, such as `CPython 3.11.7`
    2. platform, such as `linux-x86_64`
    3. `name==version` of every installed distribution, the name in lower case with `-` for runs of `-_.`,
       without Mingora's own, each line once
    """
    lines = [
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{platform.system().lower()}-{platform.machine().lower()}",
    ]
    installed: set[str] = set()
    for distribution in metadata.distributions():
        raw = distribution.metadata["Name"]
        name = re.sub(r"[-_.]+", "-", raw or "").lower()
        if name and name not in _OWN:
            installed.add(f"{name}=={distribution.version}")
    text = "\n".join([*lines, *sorted(installed)]) + "\n"
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def find_gpu(index: int) -> Gpu:
    """The NVIDIA GPU of that index, as nvidia-smi tells it."""
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_SECONDS, check=False)
    except FileNotFoundError as error:
        raise MachineProblem(
            _("--gpu-index {index}: nvidia-smi isn't installed.").format(index=index),
            hint=_("Install NVIDIA's driver, or leave --gpu-index out."),
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineProblem(_("nvidia-smi failed: {reason}").format(reason=error)) from error
    fields = [part.strip() for part in done.stdout.strip().split(",")]
    if done.returncode != 0 or len(fields) != 3 or not fields[0].startswith("GPU-"):
        raise MachineProblem(
            _("There is no GPU {index} on this machine.").format(index=index),
            hint=_("`nvidia-smi -L` lists what there is."),
        )
    return Gpu(index, fields[0], fields[1], int(fields[2]) if fields[2].isdigit() else 0)


def lock_gpu(gpu: Gpu, folder: Path | None = None) -> IO[bytes]:
    """Takes the GPU for this process, against workers of every account on the machine (JOB-6).

    The lock lasts until the file is closed or the process ends. Raises `MachineProblem` when it is taken.
    """
    path = (folder or lock_folder()) / f"mingora-{re.sub(r'[^A-Za-z0-9-]', '', gpu.uuid)}.lock"
    file = lock_file(path)
    if file is None:
        raise MachineProblem(
            _("Another worker on this machine uses GPU {index}.").format(index=gpu.index),
            hint=_("Give this one another --gpu-index."),
        )
    return file


def lock_file(path: Path) -> IO[bytes] | None:
    """Holds a lock that workers of every account respect; None when another has it. Raises `MachineProblem`."""
    try:
        file = _open_shared(path)
    except OSError as error:
        raise MachineProblem(
            _("The lock {path} can't be used: {reason}").format(path=path, reason=error.strerror)
        ) from error
    if not try_lock(file):
        file.close()
        return None
    return file


def _open_shared(path: Path) -> IO[bytes]:
    """A lock file that every account can open: reading is enough for the lock, and nobody can change it.

    It is made without following links, for others may write to the folder.
    """
    if sys.platform == "win32":
        return path.open("a+b")
    for _attempt in range(2):
        try:
            return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        os.fchmod(descriptor, 0o644)
        return os.fdopen(descriptor, "rb")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def lock_folder() -> Path:
    """A folder that is the same for every account: chosen by its own rights, never by the account's."""
    if sys.platform == "win32":
        folder = Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData")) / "Mingora"
        folder.mkdir(exist_ok=True)
        return folder
    for name in ("/run/lock", "/var/lock"):
        try:
            mode = Path(name).stat().st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) and mode & stat.S_ISVTX and mode & stat.S_IWOTH:
            return Path(name)
    return Path("/tmp")  # noqa: S108 - the one folder that all accounts share; files are opened without following links


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_mib() -> int:
    total = psutil.virtual_memory().total
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        total = min(total, int(limit)) if limit.isdigit() else total
    except OSError:
        pass
    return int(total) >> 20
