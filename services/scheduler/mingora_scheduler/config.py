"""Scheduler's settings, read once from the environment (docs/configuration.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from mingora_common.clock import DAY
from mingora_common.config import Env, FrameConfig


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of the service.

    ``max_waiters`` is how many waiting reads one process holds at most; ``node_token_days`` how long a worker's token
    lasts after the worker was last heard from.
    """

    database_url: str
    redis_url: str
    internal_key: str
    blobstore_url: str
    internal_ca_file: str | None = None
    max_waiters: int = 256
    node_token_days: int = 30
    frame: FrameConfig = field(default_factory=FrameConfig)

    @property
    def node_token_life(self) -> int:
        """Milliseconds."""
        return self.node_token_days * DAY

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read and check the environment; raises ``ConfigError`` naming every problem."""
        env = Env(environ)
        config = cls(
            database_url=env.database_url(),
            redis_url=env.redis_url(),
            internal_key=env.secret("MINGORA_INTERNAL_KEY"),
            blobstore_url=env.text("MINGORA_BLOBSTORE_URL"),
            internal_ca_file=env.optional("MINGORA_INTERNAL_CA_FILE"),
            max_waiters=env.integer("MINGORA_MAX_WAITERS", 256, minimum=1, maximum=10_000),
            node_token_days=env.integer("MINGORA_NODE_TOKEN_DAYS", 30, minimum=1, maximum=3650),
            frame=FrameConfig.read(env),
        )
        env.check()
        return config


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """Settings of the task worker, which needs no secret of the services among themselves.

    ``alive_file`` is touched after each task that was done: its age tells a health check whether tasks get through.
    """

    database_url: str
    redis_url: str
    alive_file: str | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read and check the environment; raises ``ConfigError`` naming every problem."""
        env = Env(environ)
        config = cls(
            database_url=env.database_url(),
            redis_url=env.redis_url(),
            alive_file=env.optional("MINGORA_ALIVE_FILE"),
        )
        env.check()
        return config
