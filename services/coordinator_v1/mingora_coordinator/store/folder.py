"""The data folder: one folder a round, which appears whole by one rename, and what else outlives the process.

    lock                     held by whoever may change anything here
    adapter.json             base model, rank, alpha, targets (:class:`Lora`)
    counters                 bytes sent and received
    keys.json, sorular.jsonl the nicknames' keys (digests), the questions
    incoming/                bodies that are still arriving; emptied at the start
    rounds/000003/           adapter.safetensors, momentum.f32, round.json; journal.jsonl, tasks.jsonl; results/
    undone/<when>-000003/    rounds that a rollback took away

A result counts once its line in ``journal.jsonl`` is durable, which is written after the result's file and name are.
The newest folder in ``rounds/`` is the open round; its adapter is what the results of the one before were made into.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mingora_coordinator.domain.settings import Lora
from mingora_coordinator.store import durable

ROUND_NAME = re.compile(r"[0-9]{6,7}")
UNDONE_NAME = re.compile(r"[0-9]+-([0-9]{6,7})")
# What to do about a damaged round.
MENDS = "restore a back-up, or go back with `mingora-coordinator rollback ROUND`"


class FolderError(Exception):
    """The data folder can't be used; the text names the fix."""


class RoundFolder:
    """Where a round's files are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.adapter = path / "adapter.safetensors"
        self.momentum = path / "momentum.f32"
        self.journal = path / "journal.jsonl"
        self.tasks = path / "tasks.jsonl"
        self.results = path / "results"
        self._about = path / "round.json"

    def about(self) -> dict[str, Any]:
        """``round.json``: number, digest, when it opened, how the round before was closed."""
        try:
            found: dict[str, Any] = json.loads(self._about.read_bytes())
        except (OSError, ValueError) as error:
            raise FolderError(f"{self._about} can't be read ({error.__class__.__name__}): {MENDS}") from error
        return found

    def write_about(self, about: dict[str, Any]) -> None:
        durable.replace(self._about, json.dumps(about, indent=1).encode())

    def result(self, name: str) -> Path:
        return self.results / name


class DataFolder:
    """The data folder at ``path``. Reading needs no lock; see :meth:`lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.incoming = path / "incoming"
        self.counters = path / "counters"
        self.keys = path / "keys.json"
        self.questions = path / "sorular.jsonl"
        self._rounds = path / "rounds"
        self._undone = path / "undone"
        self._lora = path / "adapter.json"
        self._lock: int | None = None

    def lock(self, patience: float = 0) -> None:
        """Make the folder this process's own, as long as it lives; wait up to ``patience`` seconds for it.

        Raises:
            FolderError: another process has it, or it can't be made.
        """
        try:
            for folder in (self.path, self._rounds, self._undone, self.incoming):
                durable.make_folder(folder)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            until = time.monotonic() + patience
            while not _locks(self._lock):
                if time.monotonic() >= until:
                    raise BlockingIOError
                time.sleep(0.1)
        except BlockingIOError:
            self.unlock()
            raise FolderError(f"{self.path} is used by a running coordinator: stop it first") from None
        except OSError as error:
            raise FolderError(f"{self.path} can't be used as data folder: {error.strerror}") from error

    def unlock(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def clean(self) -> None:
        """Remove what a killed process left unfinished."""
        for path in self.incoming.iterdir():
            path.unlink()
        for path in self._rounds.iterdir():
            if not ROUND_NAME.fullmatch(path.name):
                shutil.rmtree(path)

    def numbers(self) -> list[int]:
        """The rounds there are, in order; the last is open."""
        if not self._rounds.is_dir():
            return []
        return sorted(int(path.name) for path in self._rounds.iterdir() if ROUND_NAME.fullmatch(path.name))

    def round(self, number: int) -> RoundFolder:
        return RoundFolder(self._rounds / f"{number:06d}")

    def highest_undone(self) -> int:
        """The highest number that a rollback took away; -1 when none did."""
        found = [UNDONE_NAME.fullmatch(path.name) for path in self._undone.iterdir()] if self._undone.is_dir() else []
        return max((int(match[1]) for match in found if match), default=-1)

    def undone(self) -> list[RoundFolder]:
        """Rounds that rollbacks took away, in the order in which that happened."""
        paths = sorted(self._undone.iterdir()) if self._undone.is_dir() else []
        return [RoundFolder(path) for path in paths if UNDONE_NAME.fullmatch(path.name)]

    def prepare(self) -> RoundFolder:
        """An empty folder in which the next round is put together; :meth:`publish` makes it one."""
        path = self._rounds / ".next"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        return RoundFolder(path)

    def publish(self, prepared: RoundFolder, number: int) -> RoundFolder:
        """Make the prepared folder, whose files are durable, round ``number``: all of it or, after a crash, nothing."""
        prepared.results.mkdir(mode=0o700)
        durable.sync_folder(prepared.path)
        found = self.round(number)
        if found.path.exists():
            # An earlier try of this process, which couldn't be made durable; nobody was told of it.
            found.path.rename(self._rounds / f".failed-{secrets.token_hex(4)}")
        prepared.path.rename(found.path)
        durable.sync_folder(self._rounds)
        return found

    def undo(self, number: int, moment: int) -> None:
        """Take round ``number``, the newest, away. ``moment``: milliseconds, for its new name."""
        self.round(number).path.rename(self._undone / f"{moment}-{number:06d}")
        durable.sync_folder(self._undone)
        durable.sync_folder(self._rounds)

    def keep_room(self, size: int) -> None:
        """Raise OSError when fewer than ``size`` bytes are left on the disk."""
        if shutil.disk_usage(self.path).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def new_incoming(self) -> Path:
        """A name for a body that begins to arrive."""
        return self.incoming / secrets.token_hex(16)

    def lora(self) -> Lora:
        """What PEFT needs to know; :class:`FolderError` when no training was begun here."""
        try:
            found = json.loads(self._lora.read_bytes())
            return Lora(found["base_model"], found["rank"], found["alpha"], tuple(found["targets"]))
        except FileNotFoundError:
            raise FolderError(f"No training was begun in {self.path}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FolderError(f"{self._lora} can't be read ({error.__class__.__name__}): restore a back-up") from error

    def write_lora(self, lora: Lora) -> None:
        durable.replace(self._lora, json.dumps(asdict(lora), indent=1).encode())

    def drop_results(self, folder: RoundFolder) -> None:
        """A closed round's results have been used and told of; their files go."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder.results)


def _locks(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
