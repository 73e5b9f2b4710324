"""How often somebody may try to sign in: counted in Redis for all processes, or in this process while Redis is away.

10 attempts a minute and 60 an hour for a name, 30 a minute for an address (a /64 for IPv6), successful ones included.
A name that nobody has is counted like any other.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time

import redis
import structlog
from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter

from mingora_common.errors import RATE_LIMITED, ServiceError

PER_NAME = (RateLimitItemPerMinute(10), RateLimitItemPerHour(60))
PER_ADDRESS = (RateLimitItemPerMinute(30),)

_log = structlog.get_logger()


class SignIns:
    """Counts sign-in attempts and refuses those over the limits."""

    def __init__(self, client: redis.Redis) -> None:
        self._shared = MovingWindowRateLimiter(
            RedisStorage("redis://", connection_pool=client.connection_pool, key_prefix="mingora:signin")
        )
        self._own = MovingWindowRateLimiter(MemoryStorage())

    def count(self, name: str, address: str) -> None:
        """Count one attempt; raises ``rate_limited`` with the seconds to wait."""
        try:
            self._count(self._shared, name, address)
        except redis.RedisError as error:
            _log.warning("sign_ins_counted_locally", error=error.__class__.__name__)
            self._count(self._own, name, address)

    def _count(self, limiter: MovingWindowRateLimiter, name: str, address: str) -> None:
        hits: list[tuple[RateLimitItem, str, str]] = [
            *((limit, "address", _network(address)) for limit in PER_ADDRESS),
            *((limit, "name", hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()) for limit in PER_NAME),
        ]
        for limit, kind, key in hits:
            if not limiter.hit(limit, kind, key):
                reset = limiter.get_window_stats(limit, kind, key).reset_time
                raise ServiceError(RATE_LIMITED, retry_after=max(1, math.ceil(reset - time.time())))


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
