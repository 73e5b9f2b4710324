"""The rule for paths inside a project or its results, as docs/protocol.md states it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 1024


def path_problem(path: str) -> str | None:
    """Why ``path`` can't be a file entry's path, or None when it can."""
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "isn't valid UTF-8"
    if not path:
        return "is empty"
    if size > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if "\\" in path or any(unicodedata.category(character) == "Cc" for character in path):
        return "has a backslash or a control character"
    for component in path.split("/"):
        if component in ("", ".", ".."):
            return "is absolute or has an empty, '.' or '..' component"
        if len(component.encode("utf-8")) > MAX_COMPONENT_BYTES:
            return f"has a component over {MAX_COMPONENT_BYTES} bytes"
    return None


def collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths that some file system would take for one, or of which one would be a folder of the other."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = _folded(path)
        if key in seen:
            return seen[key], path
        if key in folders:
            return folders[key], path
        seen[key] = path
        parent = key
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in seen:
                return seen[parent], path
            folders.setdefault(parent, path)
    return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
