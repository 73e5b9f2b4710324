"""Which account of the machine a container's processes are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mingora_worker.machine import MachineProblem, lock_file, lock_folder
from mingora_worker.texts import _

# Between what Debian's policy and systemd hand out: no account of the machine has them.
FIRST_SLOT_ID = 61_000
SLOTS = 100


@dataclass(frozen=True)
class User:
    """`held`: the lock that keeps the number this worker's; None when the number is the account's own."""

    uid: int
    gid: int
    held: IO[bytes] | None = None

    def release(self) -> None:
        if self.held is not None:
            self.held.close()

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


def own_uid() -> int | None:
    """This process's account; None where accounts aren't numbers (Windows)."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def choose(folder: Path | None = None, *, rootless: bool = False) -> User:
    """The worker's own account, or for root a number that no other worker on the machine has now.

    Without it two jobs of two workers, were they to leave their containers, would be one account. A rootless engine
    calls the worker's account root, so that its containers have a number of their own as well.
    """
    own = own_uid()
    if own not in {0, None} and not rootless:
        return User(own, os.getegid())
    for slot in range(SLOTS):
        held = lock_file((folder or lock_folder()) / f"mingora-slot-{slot}.lock")
        if held is not None:
            return User(FIRST_SLOT_ID + slot, FIRST_SLOT_ID + slot, held)
    raise MachineProblem(_("{count} workers with containers run on this machine already.").format(count=SLOTS))
