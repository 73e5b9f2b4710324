"""An output in a plain folder, counted while the job runs: a fast writer overshoots until it is ended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from docker.types import Mount

from mingora_worker.results import Collected, collect
from mingora_worker.runtimes.docker.output import (
    FOLDER,
    SPARE_BYTES,
    Place,
    bind,
    copy_preset,
    give,
    most_bytes,
    need_room,
)
from mingora_worker.state import remove_tree

# After counting there is a pause of as many times what it took.
PAUSES = 9


class WatchdogOutput:
    """For where neither root nor the engine's volumes can be had."""

    kind = "watchdog"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._folder = place.folder / FOLDER
        self._full = False
        self._count_at = 0.0
        need_room(place.folder, place.limit_bytes)
        self._folder.mkdir(0o700)
        try:
            give(self._folder, place)
            copy_preset(place, self._folder)
        except BaseException:
            self.close()
            raise

    def mount(self, target: str) -> Mount:
        return bind(self._folder, target)

    def full(self) -> bool:
        """As last counted, which takes a tenth of the time at most."""
        now = time.monotonic()
        if now >= self._count_at:
            self._full = exceeds(self._folder, self._place.limit_bytes, self._place.limit_inodes)
            ended = time.monotonic()
            self._count_at = ended + (ended - now) * PAUSES
        return self._full

    def over(self) -> bool:
        """Also when the disk runs out: a file that was removed while it is open can't be counted."""
        return shutil.disk_usage(self._folder).free < SPARE_BYTES or self.full()

    def collect(self, check: Callable[[], object]) -> Collected:
        return collect(self._folder.parent, FOLDER, check=check, most_bytes=most_bytes(self._place))

    def close(self) -> None:
        remove_tree(self._folder)


def exceeds(folder: Path, limit_bytes: int, limit_inodes: int) -> bool:
    """Whether a folder's content reaches either limit; counting ends there. What can't be counted is too much."""
    left, inodes, pending = limit_bytes, limit_inodes, [os.fspath(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # the job removed it meanwhile
                    left -= info.st_blocks * 512
                    inodes -= 1
                    if left <= 0 or inodes <= 0:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # the job removed it meanwhile
        except OSError:
            return True
    return False
