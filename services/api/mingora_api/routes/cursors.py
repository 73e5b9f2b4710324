"""The opaque cursor of the job list: a place in the order, checked when it comes back."""

from __future__ import annotations

import base64
import re

from mingora_api.store.jobs import Position
from mingora_common.errors import INVALID_REQUEST, ServiceError
from mingora_common.ids import is_id

_SHAPE = re.compile(r"([0-9]{1,15})\.(job_[A-Za-z0-9_-]{1,76})")


def write_cursor(position: Position) -> str:
    """The text for a client to send back."""
    return base64.urlsafe_b64encode(f"{position.created_at}.{position.job_id}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> Position:
    """The place that a client sent back; raises ``invalid_request``."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        plain = ""
    match = _SHAPE.fullmatch(plain)
    if match is None or not is_id("job", match[2]):
        raise ServiceError(INVALID_REQUEST, "This isn't a cursor of this list.", field="before")
    return Position(int(match[1]), match[2])
