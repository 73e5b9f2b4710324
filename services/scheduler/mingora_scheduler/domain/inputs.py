"""The digest of a job's inputs, which every rank confirms before any of them starts (JOB-3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def inputs_digest(entries: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 (hex) of the canonical list ``[[path, size, sha256, executable], …]`` sorted by path.

    The list is JSON without spaces, in UTF-8, not escaped.
    """
    rows = sorted([entry["path"], entry["size"], entry["sha256"], entry["executable"]] for entry in entries)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
