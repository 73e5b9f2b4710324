"""Power cuts for programs that keep small files: what may be on the disk after one, by what had been synced by then.

The model is POSIX's, not one file system's: a file's bytes are there once the file was synced, a name's change once
its folder was; of the later changes of a folder any first part may be there. Folders are independent of one another.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class _File:
    synced: bytes = b""


@dataclass
class _Folder:
    """The changes of a folder's names, in order; the first ``synced`` of them are durable."""

    changes: list[Callable[[dict[str, _Node]], None]] = field(default_factory=list)
    synced: int = 0


_Node = _File | _Folder


class Disk:
    """Watches what happens below ``top`` (which is there, and durable, already)."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top = top
        self._nodes: dict[Path, _Node] = {top: _Folder()}
        self.moments: list[Callable[[Path], Iterator[Path]]] = []
        self._check: Callable[[Path], None] | None = None
        self._scratch = top.with_name(top.name + "-after")
        self._scratch.mkdir()
        self._number = itertools.count()
        self.cuts = 0
        for name in ("open", "replace", "unlink", "mkdir", "fsync", "rmdir"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def expect(self, check: Callable[[Path], None]) -> None:
        """``check`` must hold of the folder after a cut now and at every step from now on."""
        self._check = check
        self._cut()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **more: Any) -> Any:
            target = Path(os.readlink(f"/proc/self/fd/{first}")) if name == "fsync" else Path(os.fspath(first))
            made = name == "open" and not target.exists()
            result = real(first, *rest, **more)
            if target.is_relative_to(self.top) and (name != "open" or (made and target.exists())):
                self._note(name, target, Path(os.fspath(rest[0])) if name == "replace" else None)
                self._cut()
            return result

        return call

    def _note(self, name: str, target: Path, to: Path | None) -> None:
        if name == "fsync":
            node = self._nodes[target]
            if isinstance(node, _Folder):
                node.synced = len(node.changes)
            else:
                node.synced = target.read_bytes()
            return
        parent = self._nodes[target.parent]
        assert isinstance(parent, _Folder)
        if name in ("open", "mkdir"):
            node = self._nodes[target] = _File() if name == "open" else _Folder()
            parent.changes.append(lambda names: names.update({target.name: node}))
        elif name == "replace":
            assert to is not None and to.parent == target.parent
            moved = self._nodes[to] = self._nodes.pop(target)
            parent.changes.append(lambda names: (names.pop(target.name, None), names.update({to.name: moved}))[1])
        else:
            self._nodes.pop(target, None)
            parent.changes.append(lambda names: (names.pop(target.name, None), None)[1])

    def _cut(self) -> None:
        if self._check is None:
            return
        folders = [node for node in self._all() if isinstance(node, _Folder)]
        for lengths in itertools.product(*(range(f.synced, len(f.changes) + 1) for f in folders)):
            kept = dict(zip(map(id, folders), lengths, strict=True))
            after = self._scratch / str(next(self._number))
            self._lay(self._nodes[self.top], after, kept)
            self._check(after)
            self.cuts += 1

    def _all(self) -> list[_Node]:
        return list({id(node): node for node in self._nodes.values()}.values())

    def _lay(self, node: _Node, path: Path, kept: dict[int, int]) -> None:
        if isinstance(node, _File):
            path.write_bytes(node.synced)
            path.chmod(0o600)
            return
        _REAL_MKDIR(path)
        names: dict[str, _Node] = {}
        for change in node.changes[: kept.get(id(node), len(node.changes))]:
            change(names)
        for name, inner in names.items():
            self._lay(inner, path / name, kept)


_REAL_MKDIR = os.mkdir
