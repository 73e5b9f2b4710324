"""The keys that the task worker and its cron share in Redis, set right when somebody made something else of one.

Redis refuses every command on a key of another type. Left in place, a forged one would stop tasks and sweeps for good.
"""

from __future__ import annotations

import redis
import structlog

from mingora_common.hints import QUEUE

_TYPES = {
    f"rq:queue:{QUEUE}": b"list",
    f"rq:queue:{QUEUE}:intermediate": b"list",
    "rq:queues": b"set",
    "rq:workers": b"set",
    f"rq:workers:{QUEUE}": b"set",
    **{f"rq:{kind}:{QUEUE}": b"zset" for kind in ("wip", "finished", "failed", "deferred", "scheduled", "canceled")},
    "rq:cron_schedulers": b"zset",
}

_log = structlog.get_logger()


def set_right(client: redis.Redis) -> None:
    """Delete the keys that aren't of the type they are used as; what they may have held is caught up with."""
    try:
        for key, wanted in _TYPES.items():
            if client.type(key) not in (wanted, b"none"):
                client.delete(key)
                _log.error("key_deleted", key=key, reason="it was of another type")
    except redis.RedisError as error:
        _log.warning("keys_unchecked", error=error.__class__.__name__)
