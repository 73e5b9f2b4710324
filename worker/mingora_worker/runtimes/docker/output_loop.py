"""An output on a file system of its own, in a file that is mounted by a loop device: the kernel keeps the limit.

The file's blocks are reserved when it is made. Were it sparse, a full disk would show only when the kernel writes the
job's pages back, and a job that doesn't call fsync would succeed with results that were never stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from docker.types import Mount

from mingora_worker.results import Collected, collect
from mingora_worker.runtimes.docker.output import FOLDER, OutputFailed, Place, bind, copy_preset, most_bytes, need_room
from mingora_worker.texts import _

IMAGE = "output.img"
BLOCK_BYTES = 4096
TOOL_SECONDS = 60.0
# mkfs.ext4's own inode size; the file system also keeps back 2 % of its blocks, at most 4,096 of them.
_INODE_BYTES = 256
_KEPT_SHARE = 50
_KEPT_MOST = 4096 * BLOCK_BYTES
# Group descriptors and bitmaps: measured below 0.02 % of the bytes, and a few blocks.
_TABLES_SHARE = 4096
_TABLES_BYTES = 64 * BLOCK_BYTES
# With so little left the output is full: the kernel refuses a large write in pieces of up to 2 MiB, not of blocks.
_FULL_SHARE = 16
_FULL_MOST = 2 << 20
# No journal: nobody needs what a crash leaves. No discard, which would give the reserved blocks back.
_MKFS = ("mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), "-I", str(_INODE_BYTES), "-m", "0", "-e", "remount-ro")
_FEATURES = "^has_journal,^resize_inode,metadata_csum,extent"
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class LoopOutput:
    """Needs root, mkfs.ext4 and loop devices. Files may be executed: a job may keep its programs there."""

    kind = "loop"

    def __init__(self, place: Place) -> None:
        self._image = place.folder / IMAGE
        self._folder = place.folder / FOLDER
        self._most_bytes = most_bytes(place)
        self._full_bytes = min(place.limit_bytes // _FULL_SHARE, _FULL_MOST)
        size = image_bytes(place.limit_bytes, place.limit_inodes)
        need_room(place.folder, size)
        try:
            self._make(place, size)
            copy_preset(place, self._folder)
        except BaseException:
            self.close()
            raise

    def mount(self, target: str) -> Mount:
        return bind(self._folder, target)

    def full(self) -> bool:
        info = os.statvfs(self._folder)
        return info.f_bavail * info.f_frsize < self._full_bytes or info.f_favail == 0

    def over(self) -> bool:
        return False

    def collect(self, check: Callable[[], object]) -> Collected:
        return collect(self._folder.parent, FOLDER, check=check, most_bytes=self._most_bytes)

    def close(self) -> None:
        unmount(self._folder)
        self._image.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()

    def _make(self, place: Place, size: int) -> None:
        image, folder = os.fspath(self._image), os.fspath(self._folder)
        run("fallocate", "-l", str(size), image)
        owner = f"root_owner={place.uid}:{place.gid},lazy_itable_init=1,nodiscard"
        run(*_MKFS, "-N", str(place.limit_inodes + 1), "-O", _FEATURES, "-E", owner, image)
        self._folder.mkdir(0o700)
        run("mount", "-t", "ext4", "-o", "loop,nosuid,nodev,noinit_itable", image, folder)
        (self._folder / "lost+found").rmdir()
        self._folder.chmod(0o700)


def image_bytes(limit_bytes: int, limit_inodes: int) -> int:
    """A file system of this size has `limit_bytes` for files, and hardly more."""
    tables = limit_inodes * _INODE_BYTES + limit_bytes // _TABLES_SHARE + _TABLES_BYTES
    kept = min((limit_bytes + tables) // (_KEPT_SHARE - 1), _KEPT_MOST)
    return -(-(limit_bytes + kept + tables) // BLOCK_BYTES) * BLOCK_BYTES


def unmount(folder: Path) -> None:
    """Takes the mount away, also from under what still uses it; nothing where none is."""
    if os.path.ismount(folder):
        run("umount", "-l", os.fspath(folder))


def mounts_below(folder: Path) -> list[Path]:
    """What is mounted there, the innermost first; on systems without a list of mounts, nothing."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    points = [Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split(" ")[4])) for line in lines]
    inside = folder.resolve()
    return [point for point in reversed(points) if inside in point.parents]


def run(*command: str) -> None:
    """Runs a tool of the system. Raises `OutputFailed` with what it said."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    tool = shutil.which(command[0], path=path)
    if tool is None:
        raise OutputFailed(_("{tool} is missing on this machine.").format(tool=command[0]))
    try:
        done = subprocess.run(
            [tool, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, env={"PATH": path, "LC_ALL": "C"},
            timeout=TOOL_SECONDS, check=False, start_new_session=True,  # Ctrl-C is the worker's
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OutputFailed(_("{tool} doesn't end.").format(tool=command[0])) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [str(done.returncode)]
        raise OutputFailed(f"{command[0]}: {said[-1]}")
