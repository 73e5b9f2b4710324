"""Ids: a prefix that names the kind, and 128 random bits."""

from __future__ import annotations

import re
import secrets

_SHAPE = re.compile(r"[a-z]{3,5}_[A-Za-z0-9_-]{8,64}")


def new_id(prefix: str) -> str:
    """A fresh id such as ``job_3q2…`` for the prefix ``job``."""
    return f"{prefix}_{secrets.token_urlsafe(16)}"


def is_id(prefix: str, value: object) -> bool:
    """Whether ``value`` has the shape of an id with this prefix (nothing is said about its existence)."""
    return isinstance(value, str) and value.startswith(prefix + "_") and _SHAPE.fullmatch(value) is not None
