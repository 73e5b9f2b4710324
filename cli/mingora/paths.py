"""The rule for a file's name in a project or among results (docs/protocol.md, "Jobs")."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from mingora.i18n import _

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 1024


def path_problem(path: str) -> str | None:
    """What is wrong with a relative, `/`-separated path, in words; None when it is fine."""
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return _("the name is not UTF-8")
    if not path:
        return _("the name is empty")
    if len(raw) > MAX_PATH_BYTES:
        return _("the path is longer than {limit} bytes").format(limit=MAX_PATH_BYTES)
    if "\\" in path:
        return _("the name has a backslash")
    if any(unicodedata.category(c) == "Cc" for c in path):
        return _("the name has a control character")
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return _("the path is not relative and plain")
    if any(len(part.encode()) > MAX_COMPONENT_BYTES for part in parts):
        return _("a name is longer than {limit} bytes").format(limit=MAX_COMPONENT_BYTES)
    return None


def folded(path: str) -> str:
    """The form in which names are one file on systems that ignore case or Unicode composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def clashes(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that can't exist side by side everywhere: equal when folded, or one a folder of the other."""
    found: list[tuple[str, str]] = []
    files: dict[str, str] = {}
    ordered = sorted(paths)
    for path in ordered:
        other = files.setdefault(folded(path), path)
        if other is not path:
            found.append((other, path))
    folders: dict[str, str] = {}
    for path in ordered:
        parts = path.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            first = folders.setdefault(folded(folder), folder)
            if first != folder:
                found.append((first, folder))
            if folded(folder) in files:
                found.append((files[folded(folder)], path))
    return list(dict.fromkeys(found))
