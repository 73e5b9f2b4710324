"""Makes the manifest of a folder: every file's path, size, SHA-256 and executable bit (CLI-4, CLI-5, CLI-7).

What a rule leaves out isn't looked into. What remains is a regular file with a name that exists everywhere, or the
folder is refused, naming every path that stands in the way.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mingora.errors import FileChanged, ProjectError
from mingora.i18n import _
from mingora.ignore import Rules
from mingora.paths import clashes, path_problem

BLOCK = 1024 * 1024
MAX_REPORTED = 20

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, from any thread, one at a time."""


@dataclass(frozen=True)
class LocalFile:
    """A file of the manifest; `mtime_ns` and `size` tell later whether it is still what was hashed."""

    path: str
    source: Path
    size: int
    sha256: str
    executable: bool
    mtime_ns: int


@dataclass(frozen=True)
class Found:
    """A file before it is hashed."""

    path: str
    source: Path
    size: int
    executable: bool
    mtime_ns: int


def build(
    root: Path,
    *,
    rules: Rules | None = None,
    limits: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> list[LocalFile]:
    """The manifest of `root`, sorted by path. `rules` None takes every file (a worker's results).

    `limits` is the policy's: files over them are reported before anything is hashed. Raises `ProjectError`.
    """
    found = scan(root, rules=rules)
    if limits is not None:
        check_limits(found, limits)
    total = sum(item.size for item in found)
    done = 0
    files: list[LocalFile] = []
    for item in found:
        files.append(_hashed(item))
        done += item.size
        if progress is not None:
            progress(done, total)
    return files


def scan(root: Path, *, rules: Rules | None = None) -> list[Found]:
    """Every file under `root` that no rule leaves out, sorted by path, not yet read."""
    problems: list[tuple[str, str]] = []
    try:
        found = sorted(_walk(root, "", rules, problems), key=lambda item: item.path)
    except NotADirectoryError as error:
        raise ProjectError(_("{path} is not a folder.").format(path=root)) from error
    except FileNotFoundError as error:
        raise ProjectError(_("The folder {path} does not exist.").format(path=root)) from error
    problems += [
        (
            second,
            _("differs from {other} only by case or Unicode form, or one is a folder of the other").format(other=first),
        )
        for first, second in clashes(item.path for item in found)
    ]
    if problems:
        raise _refusal(_("The folder can't be sent as it is:"), problems)
    return found


def check_limits(found: Sequence[Found], limits: Mapping[str, int]) -> None:
    """Reports a project over the policy's limits: `maxInputs` or `maxFiles`, `maxFileBytes`, `maxBytes`."""
    problems: list[tuple[str, str]] = []
    most = min(limits.get("maxInputs", len(found)), limits.get("maxFiles", len(found)))
    if len(found) > most:
        problems.append((".", _("{count} files, {limit} are allowed").format(count=len(found), limit=most)))
    largest = limits.get("maxFileBytes")
    if largest is not None:
        problems += [
            (item.path, _("{size} bytes, {limit} are allowed for a file").format(size=item.size, limit=largest))
            for item in found
            if item.size > largest
        ]
    total, allowed = sum(item.size for item in found), limits.get("maxBytes")
    if allowed is not None and total > allowed:
        problems.append((".", _("{size} bytes in all, {limit} are allowed").format(size=total, limit=allowed)))
    if problems:
        raise _refusal(
            _("The folder is over the platform's limits:"),
            problems,
            hint=_("Leave files out by rules in .mingoraignore."),
        )


def hash_file(path: Path) -> tuple[str, int]:
    """SHA-256 (hex) and size of a file, read in steps."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def _walk(folder: Path, prefix: str, rules: Rules | None, problems: list[tuple[str, str]]) -> Iterator[Found]:
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules is not None and rules.leaves_out(path, folder=is_folder, source=Path(entry.path)):
            continue
        wrong = path_problem(path)
        if wrong is not None:
            problems.append((printable(path), wrong))
        elif is_folder and not _is_junction(entry):
            try:
                yield from _walk(Path(entry.path), f"{path}/", rules, problems)
            except OSError as error:
                problems.append((path, _("can't be read: {reason}").format(reason=error.strerror)))
        else:
            found = _file(entry, path, problems)
            if found is not None:
                yield found


def _file(entry: os.DirEntry[str], path: str, problems: list[tuple[str, str]]) -> Found | None:
    if entry.is_symlink() or _is_junction(entry):
        problems.append((path, _("is a symbolic link; put the file itself there or leave it out")))
        return None
    try:
        info = Path(entry.path).lstat()
        if not stat.S_ISREG(info.st_mode):
            problems.append((path, _("is neither a file nor a folder")))
            return None
        with open(entry.path, "rb"):
            pass
    except OSError as error:
        problems.append((path, _("can't be read: {reason}").format(reason=error.strerror)))
        return None
    executable = os.name != "nt" and bool(info.st_mode & stat.S_IXUSR)
    return Found(path, Path(entry.path), info.st_size, executable, info.st_mtime_ns)


def _is_junction(entry: os.DirEntry[str]) -> bool:
    """Windows' mount-point folders lead elsewhere like links do; Python knows them from 3.12 on."""
    if os.name != "nt":
        return False
    tag = getattr(entry.stat(follow_symlinks=False), "st_reparse_tag", 0)
    return bool(tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1))


def _hashed(item: Found) -> LocalFile:
    try:
        sha256, size = hash_file(item.source)
    except OSError as error:
        text = _("can't be read: {reason}").format(reason=error.strerror)
        raise ProjectError(f"{item.path}: {text}", problems=[(item.path, text)]) from error
    if size != item.size:
        raise FileChanged(_("{path} changed while it was read.").format(path=item.path))
    return LocalFile(item.path, item.source, size, sha256, item.executable, item.mtime_ns)


def printable(path: str) -> str:
    """A name fit for a message: what isn't UTF-8 or is a control character is escaped."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refusal(heading: str, problems: list[tuple[str, str]], *, hint: str | None = None) -> ProjectError:
    lines = [heading, *(f"  {path}: {text}" for path, text in problems[:MAX_REPORTED])]
    if len(problems) > MAX_REPORTED:
        lines.append(_("  and {count} more").format(count=len(problems) - MAX_REPORTED))
    return ProjectError("\n".join(lines), problems=problems, hint=hint)
