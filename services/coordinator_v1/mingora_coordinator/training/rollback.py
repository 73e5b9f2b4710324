"""Going back to an earlier adapter. What came after it is moved aside, not deleted."""

from __future__ import annotations

import contextlib

from mingora_coordinator.store.durable import Lines, sync_folder
from mingora_coordinator.store.folder import DataFolder, FolderError


def rollback(folder: DataFolder, number: int, now: int) -> list[int]:
    """Make round ``number`` the open one again, without results; the rounds that were taken away, newest first.

    The folder is locked. Every round that may become the newest is first marked as opened again, so that whatever
    moment a crash chooses, the newest round has no results that are gone; the command is then given again.

    Raises:
        FolderError: there is no such round.
    """
    numbers = folder.numbers()
    if number not in numbers:
        there = f"rounds {numbers[0]} to {numbers[-1]}" if numbers else "no round"
        raise FolderError(f"There is no round {number}: {folder.path} has {there}")
    later = [found for found in reversed(numbers) if found > number]
    for found in (number, *reversed(later[1:])):
        kept = folder.round(found)
        lines = Lines(kept.journal)
        lines.append({"event": "reopened", "at": now}, durable=True)
        lines.close()
        kept.tasks.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            kept.results.mkdir(mode=0o700)
        sync_folder(kept.path)
    for found in later:
        folder.undo(found, now)
    return later
