"""Counts of what happens in tasks and services alike, kept in Redis for all processes: the task workers have no address
that Prometheus could ask, and come and go. The scheduler shows them.

Best effort, like everything in Redis: when it is emptied the counts begin anew, which Prometheus understands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import redis
import structlog

KEY = "mingora:tally"

_log = structlog.get_logger()


def add(client: redis.Redis, counts: Mapping[str, int], times: Mapping[str, int] | None = None) -> None:
    """Add to the counts, and note times (milliseconds); nothing is raised when Redis is away."""
    try:
        with client.pipeline(transaction=False) as pipeline:
            for name, number in counts.items():
                pipeline.hincrby(KEY, name, number)
            if times:
                pipeline.hset(KEY, mapping=dict(times))
            pipeline.execute()
    except redis.RedisError as error:
        _log.warning("counts_lost", error=error.__class__.__name__)


def read(client: redis.Redis) -> dict[str, int]:
    """All counts and times; raises ``RedisError``."""
    found = cast(dict[bytes, bytes], client.hgetall(KEY))
    return {name.decode(): int(value) for name, value in found.items() if value.lstrip(b"-").isdigit()}
