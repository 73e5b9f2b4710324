"""Where a container's job writes its results: never more bytes or files than allowed (WORK-7).

Three kinds, the best that the machine allows: a file system of its own in a loop image (needs root), a tmpfs volume of
the engine, and a plain folder that is counted again and again (which a fast writer overshoots).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import docker
from docker.types import Mount

from mingora.errors import MingoraError
from mingora_worker.results import Collected
from mingora_worker.texts import _

# Below the job's folder; neither name can be the project's, which has a folder to itself.
FOLDER = "output"
# No job takes the last of the disk that the worker, its logs and the other jobs live on.
SPARE_BYTES = 256 << 20


class OutputFailed(MingoraError):
    """The output can't be made or read; the message is for the job's owner."""


class OutputFull(OutputFailed):
    """The project's own files under results/ are more than the output may hold."""


@dataclass(frozen=True)
class Place:
    """Whose output, how much of it, and where. `preset`: the project's `results/`, copied in first and counted."""

    folder: Path
    uid: int
    gid: int
    limit_bytes: int
    limit_inodes: int
    engine: docker.DockerClient
    labels: Mapping[str, str]
    image: str
    preset: Path


class Output(Protocol):
    """The output of one job. Making one raises `OutputFailed`, or `OSError` (ENOSPC: this machine has no room)."""

    kind: str

    def mount(self, target: str) -> Mount:
        """For `containers.create`."""

    def full(self) -> bool:
        """Whether the job has reached the limit of bytes or files, as far as that can be seen now; cheap."""

    def over(self) -> bool:
        """Whether the job has to be ended now, as nothing else keeps it from writing more."""

    def collect(self, check: Callable[[], object]) -> Collected:
        """What the job left, once its container has stopped; the files stay until `close`.

        Raises what `check` raises, `TooManyFiles`, `OutputFailed` and `OSError`.
        """

    def close(self) -> None:
        """Removes the output. May be called again."""


def bind(folder: Path, target: str) -> Mount:
    """The folder itself, writable in the container."""
    return Mount(target, os.fspath(folder), type="bind")


def most_bytes(place: Place) -> int:
    """More than all files of an output can have, by their sizes, unless they are of holes."""
    return place.limit_bytes * 5 // 4


def need_room(folder: Path, size: int) -> None:
    """Raises `OSError` (ENOSPC) where the disk has no `size` bytes to give."""
    if shutil.disk_usage(folder).free < size + SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(folder))


def give(path: Path, place: Place) -> None:
    """Makes it the container's user's, where files belong to numbers (not on Windows)."""
    if hasattr(os, "chown"):
        os.chown(path, place.uid, place.gid)


def copy_preset(place: Place, target: Path) -> None:
    """Copies the project's own results, which belong to the job's user then. Raises `OutputFull`."""
    try:
        for source, name, is_folder in preset_entries(place):
            path = target / name
            if is_folder:
                path.mkdir(0o700)
            else:
                shutil.copyfile(source, path)
                path.chmod(source.stat().st_mode & 0o700 | 0o600)
            give(path, place)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise preset_too_large(place) from error
        raise


def preset_entries(place: Place) -> Iterator[tuple[Path, str, bool]]:
    """Source, path below results/, and whether it is a folder: folders before what is in them. Raises `OutputFull`."""
    left, inodes = place.limit_bytes, place.limit_inodes
    for folder, folders, files in os.walk(place.preset):
        for name in [*folders, *files]:
            source = Path(folder, name)
            is_folder = name in folders
            inodes -= 1
            left -= 0 if is_folder else source.stat().st_size
            if left < 0 or inodes < 0:
                raise preset_too_large(place)
            yield source, source.relative_to(place.preset).as_posix(), is_folder


def preset_too_large(place: Place) -> OutputFull:
    text = _("The project's own files under results/ are more than the {limit} MiB or {count} files of an output.")
    return OutputFull(text.format(limit=place.limit_bytes >> 20, count=place.limit_inodes))
