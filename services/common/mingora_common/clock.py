"""The one source of time. Stored times are integer milliseconds since 1970-01-01T00:00:00Z."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Clock(Protocol):
    """Tells the time; tests inject one that stands still."""

    def now(self) -> int:
        """Wall-clock time in milliseconds since the epoch, UTC."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


def rfc3339(milliseconds: int) -> str:
    """Render a stored time as people and clients read it, e.g. ``2026-01-31T10:00:00.000Z``."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def rfc3339_or_none(milliseconds: int | None) -> str | None:
    """``rfc3339`` for a time that may not have come yet."""
    return None if milliseconds is None else rfc3339(milliseconds)
