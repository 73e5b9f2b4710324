"""A job as api knows it: its states, how it is submitted once, and what makes two submissions the same."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

STATES = ("queued", "reserved", "running", "stopping", "succeeded", "failed", "cancelled")
TERMINAL = frozenset(("succeeded", "failed", "cancelled"))

# Numbers of attempts, ranks and events fit 32 bits.
MAX_NUMBER = 2**31 - 1

_KEY = re.compile(r"[\x20-\x7e]{1,200}")


def is_key(text: str) -> bool:
    """Whether ``text`` can be an idempotency key: 1 to 200 printable ASCII characters."""
    return _KEY.fullmatch(text) is not None


def fingerprint(spec: dict[str, Any], inputs: list[dict[str, Any]]) -> str:
    """What a submission is, apart from its key and its object ids: SHA-256 hex over canonical JSON.

    Inputs count by path, digest, size and executable bit, in the order of their paths.
    """
    files = sorted([entry["path"], entry["sha256"], entry["size"], entry["executable"]] for entry in inputs)
    canonical = json.dumps([spec, files], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
