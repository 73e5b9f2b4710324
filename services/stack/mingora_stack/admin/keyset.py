"""A set of parts' keys of any size: in a temporary file, not in memory."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from mingora_blobstore.domain.objects import PartKey


class KeySet:
    """Use it as a context manager. Its file lies in ``folder``, has no name, and goes with the process."""

    def __init__(self, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".keys-", dir=folder)
        os.close(descriptor)
        self._file = sqlite3.connect(name, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            "CREATE TABLE key (object_id, generation, idx, sha256, PRIMARY KEY (object_id, generation, idx, sha256)) "
            "WITHOUT ROWID",
            "BEGIN",
        ):
            self._file.execute(statement)
        Path(name).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def add(self, key: PartKey) -> None:
        self._file.execute("INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)", _values(key))

    def __contains__(self, key: PartKey) -> bool:
        query = "SELECT 1 FROM key WHERE object_id = ? AND generation = ? AND idx = ? AND sha256 = ?"
        return self._file.execute(query, _values(key)).fetchone() is not None

    def __iter__(self) -> Iterator[PartKey]:
        for row in self._file.execute("SELECT * FROM key"):
            yield PartKey(*row)


def _values(key: PartKey) -> tuple[str, int, int, str]:
    return key.object_id, key.generation, key.index, key.sha256
