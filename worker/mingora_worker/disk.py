"""Whether there is room for another job, and whether the running one stays within --max-disk."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

from mingora_worker.texts import _

# A job's log may take 100 MiB, its inputs and results as much again.
NEEDED_BYTES = 512 * 1024 * 1024
# Counting a folder may take at most this share of the time.
COUNT_SHARE = 0.02
COUNT_SECONDS = 5.0


class Disk:
    """`limit`: bytes that `root` may hold, None for no limit but the disk's."""

    def __init__(self, root: Path, limit: int | None) -> None:
        self._root = root
        self._limit = limit
        self._count_at = 0.0

    def problem(self) -> str | None:
        """Why no job may be claimed now, in words for people."""
        free = shutil.disk_usage(self._root).free
        if free < NEEDED_BYTES:
            text = _("{free} MiB are free on the disk of {root}; {needed} MiB are needed.")
            return text.format(free=free >> 20, root=self._root, needed=NEEDED_BYTES >> 20)
        if self._limit is not None:
            left = self._limit - folder_bytes(self._root)
            if left < NEEDED_BYTES:
                text = _("{left} MiB are left of --max-disk; {needed} MiB are needed.")
                return text.format(left=max(0, left) >> 20, needed=NEEDED_BYTES >> 20)
        return None

    def within_limit(self) -> bool:
        """Whether `root` holds no more than allowed. Counts only now and then: folders may be large."""
        now = time.monotonic()
        if self._limit is None or now < self._count_at:
            return True
        size = folder_bytes(self._root)
        taken = time.monotonic() - now
        self._count_at = time.monotonic() + max(COUNT_SECONDS, taken / COUNT_SHARE)
        return size <= self._limit


def folder_bytes(folder: Path) -> int:
    """Bytes that a folder's files take on its disk; what vanishes meanwhile or can't be read counts nothing.

    What is mounted below it lies elsewhere, or in a file that is counted already.
    """
    total = 0
    pending = [os.fspath(folder)]
    try:
        disk = os.lstat(folder).st_dev
    except OSError:
        return 0
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    if info.st_dev != disk:
                        continue
                    if stat.S_ISDIR(info.st_mode):
                        pending.append(entry.path)
                    else:
                        total += getattr(info, "st_blocks", 0) * 512 or info.st_size
        except OSError:
            continue
    return total
