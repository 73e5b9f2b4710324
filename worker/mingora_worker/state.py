"""What the worker keeps on disk below its root, so that a killed worker loses nothing at its next start.

<root>/lock                      held while a worker runs
<root>/node.json                 node id, node key, node token (mode 600)
<root>/claim.json                the claim that may still be unanswered
<root>/docker.json               the label of this worker's containers
<root>/jobs/<leaseId>/lease.json ids, lease token, marker and processes of one attempt (mode 600)
<root>/jobs/<leaseId>/{project,tmp,log}
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import secrets
import stat
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from mingora import faults
from mingora.durable import make_folder, sync_folder
from mingora.errors import MingoraError
from mingora.manifest import printable
from mingora_worker.texts import _

T = TypeVar("T")
LABEL_FILE = "docker.json"
_OWN_NAMES = frozenset(
    {"lock", "jobs", "node.json.new", "claim.json", "claim.json.new", LABEL_FILE, f"{LABEL_FILE}.new"}
)


class RootProblem(MingoraError):
    """The worker's folder can't be used."""


@dataclass
class NodeRecord:
    """The registered node. `token` is empty until the platform has answered."""

    server: str
    key: str
    id: str = ""
    token: str = ""
    ca_file: str | None = None


@dataclass
class ProcessId:
    """A process told apart from a later one with the same number. `created`: seconds since the epoch."""

    pid: int
    created: float


@dataclass
class LeaseRecord:
    """One attempt, written before its first process starts. `mark` is in the environment of all of them."""

    lease_id: str
    attempt: int
    job_id: str
    claim_id: str
    token: str
    ttl: float
    log_cap: int
    mark: str
    pgid: int | None = None
    processes: list[ProcessId] = field(default_factory=list)
    request_id: str = ""
    runtime: str = "native"


class Root:
    """The folder of one worker, locked against a second one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs = path / "jobs"
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """Creates the folder (mode 700) and locks it. Raises `RootProblem`."""
        try:
            self._check_ours()
            make_folder(self.path, 0o700)
            make_folder(self.jobs, 0o700)
            lock = (self.path / "lock").open("ab")
        except OSError as error:
            raise RootProblem(
                _("The folder {path} can't be used: {reason}").format(path=self.path, reason=error.strerror)
            ) from error
        if not try_lock(lock):
            lock.close()
            raise RootProblem(
                _("Another worker runs in {path}.").format(path=self.path),
                hint=_("Stop it, or give this one another --root."),
            )
        self._lock = lock

    def _check_ours(self) -> None:
        """A job's folders are removed with all that is in them: nothing of anybody else's may be near."""
        if (self.path / "node.json").exists() or (self.jobs.is_dir() and (self.path / "lock").exists()):
            return
        with contextlib.suppress(FileNotFoundError):
            strange = sorted(entry.name for entry in self.path.iterdir() if entry.name not in _OWN_NAMES)
            if strange:
                raise RootProblem(
                    _("The folder {path} holds something else: {name}").format(
                        path=self.path, name=printable(strange[0])
                    ),
                    hint=_("Give the worker an empty folder, or one that does not exist yet: --root DIR"),
                )

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def node(self) -> NodeRecord | None:
        return _load(self.path / "node.json", NodeRecord)

    def save_node(self, record: NodeRecord) -> None:
        write_private(self.path / "node.json", asdict(record))

    def pending_claim(self) -> str | None:
        try:
            value = json.loads(_read_regular(self.path / "claim.json"))["claimId"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if isinstance(value, str) and value else None

    def save_claim(self, claim_id: str) -> None:
        write_private(self.path / "claim.json", {"claimId": claim_id})

    def forget_claim(self) -> None:
        (self.path / "claim.json").unlink(missing_ok=True)
        faults.point("claim.json/forgotten")

    def leftovers(self) -> list[JobFolder]:
        return [JobFolder(p) for p in sorted(self.jobs.iterdir())]

    def job(self, lease_id: str) -> JobFolder:
        """The folder of a lease, whose id the caller has checked to be a plain name."""
        return JobFolder(self.jobs / lease_id)


class JobFolder:
    """The folder of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.project = path / "project"
        self.tmp = path / "tmp"
        self.log = path / "log"

    def create(self) -> None:
        make_folder(self.path, 0o700)  # before the claim is forgotten the lease has to be there for good
        self.project.mkdir(mode=0o700, exist_ok=True)
        self.tmp.mkdir(mode=0o700, exist_ok=True)

    def record(self) -> LeaseRecord | None:
        loaded = _load(self.path / "lease.json", LeaseRecord)
        if loaded is not None:
            try:
                loaded.processes = [ProcessId(**p) for p in loaded.processes]  # type: ignore[arg-type]
            except TypeError:
                return None
        return loaded

    def save(self, record: LeaseRecord, *, durable: bool = True) -> None:
        write_private(self.path / "lease.json", asdict(record), durable=durable)

    def remove(self) -> bool:
        """Removes everything, folders without rights included. Returns whether nothing is left."""
        faults.point("folder/remove")
        remove_tree(self.path)
        faults.point("folder/removed")
        return not self.path.exists()


def remove_tree(path: Path) -> None:
    """Like `rm -rf`: follows no link, and gives itself the rights that a job took away. Leaves what resists.

    Every inner folder is moved up to `path` before it is emptied, so that no depth and no length of paths matters.
    """
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
    _take_over(path)
    prefix = f".remove-{secrets.token_hex(4)}-"
    moved = itertools.count()
    removed = 1
    while removed:
        removed = 0
        for folder in _empty_of_files(path):
            for inner in _empty_of_files(folder):
                with contextlib.suppress(OSError):
                    inner.rename(path / f"{prefix}{next(moved)}")
            with contextlib.suppress(OSError):
                folder.rmdir()
                removed += 1
    with contextlib.suppress(OSError):
        path.rmdir()


def _empty_of_files(folder: Path) -> list[Path]:
    """Unlinks what isn't a folder and returns the folders, with rights to change them."""
    folders: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                _take_over(path)
                folders.append(path)
            else:
                _unlink(path)
    return folders


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        if os.name == "nt" and not path.is_symlink():
            path.chmod(stat.S_IRWXU)  # Windows keeps read-only files
        path.unlink()


def _take_over(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.chmod(stat.S_IRWXU)


def write_private(path: Path, value: dict[str, Any], *, durable: bool = True) -> None:
    """Writes JSON that only this account can read, whole or not at all; `durable`: a power cut can't undo it."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # what a job put there might lead elsewhere, or block for ever
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    faults.point(f"{path.name}/write")
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)
    faults.point(f"{path.name}/written")


def _load(path: Path, kind: type[T]) -> T | None:
    """The record in a file, or None when there is none that can be read: it is made anew then."""
    try:
        return kind(**json.loads(_read_regular(path)))
    except (OSError, ValueError, TypeError):
        return None


def _read_regular(path: Path) -> bytes:
    """A file's bytes. A pipe or a device, which a job may have put in its place, would block or never end."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no file", str(path))
        return file.read()


def try_lock(file: IO[bytes]) -> bool:
    """Whether the lock on `file` was free; it is held until the file is closed or the process ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
