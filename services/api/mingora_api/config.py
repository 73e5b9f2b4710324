"""The settings of the api service, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mingora_common.config import Env, FrameConfig


@dataclass(frozen=True, slots=True)
class Config:
    """Settings by their environment names.

    Attributes:
        database_url: ``DATABASE_URL``, an SQLAlchemy URL.
        redis_url: ``REDIS_URL``; sign-in attempts are counted there. Without it each process counts for itself.
        internal_key: ``MINGORA_INTERNAL_KEY``, the secret between the services.
        blobstore_url: ``MINGORA_BLOBSTORE_URL``, where inputs are pinned.
        internal_ca_file: ``MINGORA_INTERNAL_CA_FILE``, the authority of blobstore's certificate, if it has its own.
        max_waiters: ``MINGORA_MAX_WAITERS``, waiting reads that one process holds at once.
        frame: what every service's HTTP frame is told.
    """

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    internal_key: str = field(repr=False)
    blobstore_url: str
    internal_ca_file: str | None = None
    max_waiters: int = 128
    frame: FrameConfig = field(default_factory=FrameConfig)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Read and check; raises ``ConfigError`` that lists every problem."""
        env = Env(environ)
        config = cls(
            database_url=env.database_url(),
            redis_url=env.redis_url(),
            internal_key=env.secret("MINGORA_INTERNAL_KEY"),
            blobstore_url=env.text("MINGORA_BLOBSTORE_URL"),
            internal_ca_file=env.optional("MINGORA_INTERNAL_CA_FILE"),
            max_waiters=env.integer("MINGORA_MAX_WAITERS", 128, minimum=1, maximum=10_000),
            frame=FrameConfig.read(env),
        )
        env.check()
        return config
