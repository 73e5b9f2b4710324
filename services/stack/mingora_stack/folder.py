"""The data folder: everything one embedded stack keeps, readable by its owner alone.

``platform.sqlite`` and ``content.sqlite`` hold the state; ``secrets/`` what is made once; ``run/`` what belongs to the
running stack; ``tls/`` its authority; ``logs/`` what its processes print.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from mingora_common.config import weakness
from mingora_stack.errors import StackError

# sockaddr_un holds 108 bytes on Linux, 104 on macOS, with the terminating zero.
MAX_SOCKET_PATH_BYTES = 103


class DataFolder:
    """The folder at ``path``, made when it isn't there."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.platform = self.path / "platform.sqlite"
        self.content = self.path / "content.sqlite"
        self.secrets = self.path / "secrets"
        self.run = self.path / "run"
        self.tls = self.path / "tls"
        self.logs = self.path / "logs"
        self._pid_file = self.run / "stack.pid"
        self._socket_note = self.run / "socket-folder"

    def prepare(self) -> None:
        """Make the folder and its parts, mode 700.

        Raises:
            StackError: it belongs to somebody else, or it holds something else.
        """
        try:
            missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.path.stat()
            if info.st_uid != os.geteuid():
                raise StackError(f"{self.path} belongs to another user.")
            ours = self.secrets.is_dir() or self.platform.is_file()
            if any(self.path.iterdir()) and not ours:
                raise StackError(f"{self.path} isn't empty and isn't a data folder of Mingora. Name another folder.")
            if stat.S_IMODE(info.st_mode) != 0o700:
                self.path.chmod(0o700)
            for part in (self.secrets, self.run, self.tls, self.logs):
                part.mkdir(mode=0o700, exist_ok=True)
            for folder in (self.path, *(each.parent for each in missing)):
                sync_folder(folder)
        except OSError as error:
            raise StackError(f"{self.path} can't be used as a data folder: {error.strerror}.") from error

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Hold the folder for this process: one stack a folder.

        The lock goes with the process however it ends, so a stale process id is never mistaken for a live stack.

        Raises:
            StackError: another stack runs on this folder.
        """
        descriptor = os.open(self._pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = (os.read(descriptor, 100).split() or [b"?"])[0].decode("ascii", "replace")
                raise StackError(f"A stack runs on {self.path} already (process {pid}). Stop it first.") from None
            started = psutil.Process().create_time()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {started:.2f}\n".encode(), 0)
            try:
                yield
            finally:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def internal_key_file(self) -> Path:
        """The file of the key that the services know each other by.

        Raises:
            StackError: somebody has put a weak one there.
        """
        path = self.secrets / "internal.key"
        weak = weakness(self._made_once(path, secrets.token_urlsafe(32)).strip())
        if weak is not None:
            raise StackError(f"The secret {path} {weak}. Delete the file: the next start makes a new one.")
        return path

    def metrics_key_file(self) -> Path:
        """The file of the key that opens ``/metrics``."""
        self._made_once(self.secrets / "metrics.key", secrets.token_urlsafe(32))
        return self.secrets / "metrics.key"

    def mark(self) -> str:
        """What the environment of every process of this folder's stack carries, so that leftovers are known as ours."""
        return self._made_once(self.run / "mark", secrets.token_hex(16))

    def socket(self, name: str) -> Path:
        """Where a Unix socket can lie: in ``run/``, or in a private temporary folder when that path is too long."""
        self.forget_sockets()
        here = self.run / name
        if len(os.fsencode(here)) <= MAX_SOCKET_PATH_BYTES:
            return here
        elsewhere = Path(tempfile.mkdtemp(prefix="mingora-"))
        self._socket_note.write_text(str(elsewhere), encoding="utf-8")
        return elsewhere / name

    def forget_sockets(self) -> None:
        """Remove sockets, and the temporary folder that an earlier call of :meth:`socket` made."""
        for socket in self.run.glob("*.sock"):
            socket.unlink(missing_ok=True)
        if self._socket_note.exists():
            elsewhere = Path(self._socket_note.read_text(encoding="utf-8"))
            if elsewhere.name.startswith("mingora-") and elsewhere.is_dir() and not elsewhere.is_symlink():
                shutil.rmtree(elsewhere, ignore_errors=True)
            self._socket_note.unlink()

    @staticmethod
    def _made_once(path: Path, value: str) -> str:
        """The text in ``path``; ``value`` is written there first when there is none, whole or not at all."""
        if not path.exists():
            fresh = path.with_name(path.name + ".new")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            sync_folder(path.parent)
        return path.read_text(encoding="ascii")


def sync_folder(folder: Path) -> None:
    """A name that was made in ``folder`` is there after a power cut too: SQLite syncs its files, not the folders."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
