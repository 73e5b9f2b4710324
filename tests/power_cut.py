"""Power cuts for programs that keep small files: what may be on the disk after one, by what had been synced by then.

The model is POSIX's, not one file system's: a file's bytes are there once the file was synced, a name's change once
its folder was; of the later changes of a folder any first part may be there. Folders are independent of one another.
"""

from __future__ import annotations

import itertools
import os
import threading
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
    """Watches what happens below ``top`` (which is there, and durable, already).

    ``most`` bounds the states that are looked at after a step; the first are those with the least on the disk.
    """

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> None:
        self.top = top
        self.most = most
        self._nodes: dict[Path, _Node] = {top: _Folder()}
        self.moments: list[Callable[[Path], Iterator[Path]]] = []
        self._check: Callable[[Path], None] | None = None
        self._scratch = top.with_name(top.name + "-after")
        self._scratch.mkdir()
        self._number = itertools.count()
        self.cuts = 0
        self._lock = threading.RLock()
        for name in ("open", "replace", "rename", "unlink", "mkdir", "fsync", "fdatasync", "rmdir"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def settle(self) -> None:
        """All that there is by now is durable."""
        self._discover()
        for path, node in self._nodes.items():
            if isinstance(node, _Folder):
                node.synced = len(node.changes)
            else:
                node.synced = path.read_bytes()

    def expect(self, check: Callable[[Path], None]) -> None:
        """``check`` must hold of the folder after a cut now and at every step from now on."""
        self._check = check
        self._cut()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **more: Any) -> Any:
            target = Path(os.readlink(f"/proc/self/fd/{first}")) if "sync" in name else Path(os.fspath(first))
            if not target.is_relative_to(self.top):
                return real(first, *rest, **more)
            with self._lock:
                self._discover()
                made = name == "open" and not target.exists()
                result = real(first, *rest, **more)
                if name != "open" or (made and target.exists()):
                    self._note(name, target, Path(os.fspath(rest[0])) if name in ("replace", "rename") else None)
                    self._cut()
                return result

        return call

    def _note(self, name: str, target: Path, to: Path | None) -> None:
        if "sync" in name:
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
        elif to is not None:
            self._move(target, to)
        else:
            self._nodes.pop(target, None)
            parent.changes.append(lambda names: (names.pop(target.name, None), None)[1])

    def _move(self, target: Path, to: Path) -> None:
        """A rename: one change where it stays in its folder, and two, of which any may be durable first, else."""
        moved = self._nodes[target]
        for path in [path for path in self._nodes if path.is_relative_to(target)]:
            self._nodes[to / path.relative_to(target)] = self._nodes.pop(path)
        old, new = self._nodes[target.parent], self._nodes[to.parent]
        assert isinstance(old, _Folder) and isinstance(new, _Folder)
        if old is new:
            old.changes.append(lambda names: (names.pop(target.name, None), names.update({to.name: moved}))[1])
        else:
            old.changes.append(lambda names: (names.pop(target.name, None), None)[1])
            new.changes.append(lambda names: names.update({to.name: moved}))

    def _discover(self) -> None:
        """What came and went by calls that aren't watched (C code's own, or relative to an open folder)."""
        for path in sorted(self.top.rglob("*")):
            if path not in self._nodes:
                self._note("mkdir" if path.is_dir() else "open", path, None)
        for path in [path for path in self._nodes if not path.exists()]:
            self._note("unlink", path, None)

    def _cut(self) -> None:
        if self._check is None:
            return
        folders = [node for node in self._all() if isinstance(node, _Folder) and node.synced < len(node.changes)]
        every = itertools.product(*(range(f.synced, len(f.changes) + 1) for f in folders))
        for lengths in itertools.islice(every, self.most):
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
