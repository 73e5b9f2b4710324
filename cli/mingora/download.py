"""Fetches objects into a folder: resumed, verified by the whole SHA-256, only then renamed into place (CLI-9).

The server's word for a name isn't trusted: nothing is written outside the destination, no symbolic link is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mingora import faults
from mingora.errors import ApiError, IntegrityError, ResultConflict, TransportError, retry_delay
from mingora.i18n import _
from mingora.manifest import Progress, hash_file, printable
from mingora.paths import clashes, path_problem
from mingora.pool import run_all
from mingora.transport import Transport

PARTIAL = ".mingora-partial"
THREADS = 4
# Names that mean something else on Windows: devices, drives and streams, and ends that it drops.
_NOT_ON_WINDOWS = re.compile(r'(?i)^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\.|$)|[<>:"|?*]|[. ]$')
_DIGEST = re.compile(r"[0-9a-f]{64}")
Entry = Mapping[str, Any]


def download_files(
    transport: Transport,
    entries: Sequence[Entry],
    destination: Path,
    *,
    progress: Progress | None = None,
    threads: int = THREADS,
    overwrite: bool = False,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Path]:
    """Writes file entries (docs/protocol.md) below `destination` and returns their paths in order.

    A file that is there and identical is left as it is; one that differs is `ResultConflict` unless `overwrite`.
    All names and conflicts are checked before anything is fetched. Bytes that don't have the stated SHA-256 are
    `IntegrityError`. `progress` counts the bytes of different contents.
    """
    _check_entries(entries)
    if destination.exists() and not destination.is_dir():
        raise ResultConflict(_("{path} is not a folder.").format(path=destination))
    destination.mkdir(parents=True, exist_ok=True)
    targets = [destination.joinpath(*entry["path"].split("/")) for entry in entries]
    wanted = _missing(entries, targets, destination, overwrite)
    fetch = _Fetch(transport, destination / PARTIAL, progress, sleep, entries, wanted)
    try:
        run_all(wanted.values(), fetch.one, threads)
    finally:
        with contextlib.suppress(OSError):  # partial files stay for the next time
            fetch.folder.rmdir()
    return targets


def _check_entries(entries: Sequence[Entry]) -> None:
    """Refuses names that lead elsewhere, and digests (they name the partial files) that are none."""
    for entry in entries:
        path = str(entry["path"])
        if not _DIGEST.fullmatch(str(entry["sha256"])) or not isinstance(entry["size"], int) or entry["size"] < 0:
            raise IntegrityError(_("{path}: the server states no valid size and SHA-256.").format(path=printable(path)))
        wrong = path_problem(path)
        parts = path.split("/")
        if wrong is None and parts[0] == PARTIAL:
            wrong = _("the name is kept for unfinished downloads")
        if wrong is None and os.name == "nt" and any(_NOT_ON_WINDOWS.search(part) for part in parts):
            wrong = _("Windows can't have a file of this name")
        if wrong is None and not _has_name(path):
            wrong = _("names of files are {encoding} here; choose a locale with UTF-8 (LC_ALL=C.UTF-8)").format(
                encoding=sys.getfilesystemencoding()
            )
        if wrong is not None:
            raise ResultConflict(f"{printable(path)}: {wrong}")
    for first, second in clashes(str(entry["path"]) for entry in entries):
        raise ResultConflict(
            _("{first} and {second} can't be in one folder.").format(first=printable(first), second=printable(second))
        )


def _has_name(path: str) -> bool:
    """Whether the system's encoding has a name for the path."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _missing(
    entries: Sequence[Entry], targets: Sequence[Path], destination: Path, overwrite: bool
) -> dict[str, list[tuple[Entry, Path]]]:
    """What is to be fetched, by content; raises for everything that stands in the way."""
    wanted: dict[str, list[tuple[Entry, Path]]] = {}
    conflicts: list[str] = []
    for entry, target in zip(entries, targets, strict=True):
        _check_folders(target, destination)
        try:
            info = target.lstat()
        except FileNotFoundError:
            info = None
        if info is not None and not stat.S_ISREG(info.st_mode):
            raise ResultConflict(_("{path} is in the way: it is no regular file.").format(path=target))
        if info is not None and info.st_size == entry["size"] and hash_file(target)[0] == entry["sha256"]:
            _set_executable(target, bool(entry["executable"]))
        elif info is not None and not overwrite:
            conflicts.append(str(target))
        else:
            wanted.setdefault(entry["sha256"], []).append((entry, target))
    if conflicts:
        raise ResultConflict(
            _("These files are there already, with other content:") + "".join(f"\n  {path}" for path in conflicts[:20]),
            hint=_("Choose another folder, or overwrite them with --force."),
        )
    return wanted


def _check_folders(target: Path, destination: Path) -> None:
    """Refuses a path that leads through a symbolic link (or a file) below the destination."""
    folder = destination
    for part in target.relative_to(destination).parts[:-1]:
        folder = folder / part
        try:
            info = folder.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(info.st_mode):
            raise ResultConflict(_("{path} is in the way: it is no folder.").format(path=folder))


class _Fetch:
    def __init__(
        self,
        transport: Transport,
        folder: Path,
        progress: Progress | None,
        sleep: Callable[[float], object],
        entries: Sequence[Entry],
        wanted: Mapping[str, list[tuple[Entry, Path]]],
    ) -> None:
        self.folder = folder
        self._transport = transport
        self._progress = progress
        self._sleep = sleep
        sizes = {entry["sha256"]: int(entry["size"]) for entry in entries}
        self._total = sum(sizes.values())
        self._have = {digest: size for digest, size in sizes.items() if digest not in wanted}
        self._lock = threading.Lock()
        if wanted:
            _check_folders(folder / "x", folder.parent)
            folder.mkdir(exist_ok=True)

    def one(self, places: list[tuple[Entry, Path]]) -> None:
        """Fetches one content and puts it in every place that wants it."""
        entry = places[0][0]
        partial = self.folder / entry["sha256"]
        resumed = partial.exists()
        good = self._receive(entry, partial)
        if resumed and not good:  # what was left from before may be what is wrong
            good = self._receive(entry, partial)
        if not good:
            raise IntegrityError(
                _("{path}: the bytes received don't have the stated SHA-256.").format(path=entry["path"])
            )
        for number, (wanted, target) in enumerate(places, 1):
            target.parent.mkdir(parents=True, exist_ok=True)
            source = partial
            if number < len(places):
                source = partial.with_name(f"{partial.name}.copy")
                shutil.copyfile(partial, source)
            _set_executable(source, bool(wanted["executable"]))
            faults.point("download/verified")
            source.replace(target)
            faults.point("download/placed")

    def _receive(self, entry: Entry, partial: Path) -> bool:
        """Fetches what the partial file lacks; False, and no file, when the whole has another digest."""
        size, attempt = int(entry["size"]), 0
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(partial, flags, 0o666), "r+b") as file:
            if file.seek(0, os.SEEK_END) > size:
                file.truncate(0)
            while (before := file.seek(0, os.SEEK_END)) < size:
                try:
                    self._read_on(entry, file, before)
                except (TransportError, ApiError) as error:
                    if isinstance(error, ApiError) and error.code == "range_not_satisfiable" and before:
                        file.truncate(0)
                        continue
                    attempt = 1 if file.tell() > before else attempt + 1
                    delay = retry_delay(error, attempt=attempt, idempotent=True)
                    if delay is None:
                        raise
                    self._sleep(delay)
            self._count(entry, size)
        if hash_file(partial) == (entry["sha256"], size):
            return True
        partial.unlink()
        return False

    def _read_on(self, entry: Entry, file: Any, start: int) -> None:
        size = int(entry["size"])
        headers = {"Range": f"bytes={start}-", "If-Range": f'"{entry["sha256"]}"'} if start else {}
        with self._transport.stream(f"/objects/{entry['objectId']}/content", headers=headers) as (answer, blocks):
            if answer.status != 206 or not answer.headers.get("content-range", "").startswith(f"bytes {start}-"):
                if answer.status == 206:
                    raise IntegrityError(_("{path}: the server sent another range.").format(path=entry["path"]))
                start = 0
                file.seek(0)
                file.truncate(0)
            for block in blocks:
                start += len(block)
                if start > size:
                    raise IntegrityError(_("{path}: the server sent too many bytes.").format(path=entry["path"]))
                file.write(block)
                self._count(entry, start)
        if start < size:
            raise IntegrityError(_("{path}: the server sent too few bytes.").format(path=entry["path"]))

    def _count(self, entry: Entry, done: int) -> None:
        with self._lock:
            self._have[entry["sha256"]] = done
            if self._progress is not None:
                self._progress(sum(self._have.values()), self._total)


def _set_executable(path: Path, executable: bool) -> None:
    """Sets or clears the executable bits, for those who may read the file."""
    if os.name == "nt":
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = mode | (mode & 0o444) >> 2 if executable else mode & ~0o111
    if wanted != mode:
        path.chmod(wanted)
