"""Blobstore's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mingora_common.config import Env, FrameConfig


@dataclass(frozen=True, slots=True)
class Config:
    """Read once from the environment by :meth:`from_env`."""

    database_url: str = field(repr=False)
    """The platform database (``DATABASE_URL``)."""
    content_file: str
    """Path of the SQLite file that holds the objects' bytes (``MINGORA_CONTENT_FILE``)."""
    internal_key: str = field(repr=False)
    """What other services show to ``/internal`` (``MINGORA_INTERNAL_KEY``)."""
    frame: FrameConfig = field(default_factory=FrameConfig)
    """What every service's HTTP frame is told."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Raises ConfigError that tells every problem."""
        env = Env(environ)
        config = cls(
            database_url=env.database_url(),
            content_file=env.text("MINGORA_CONTENT_FILE"),
            internal_key=env.secret("MINGORA_INTERNAL_KEY"),
            frame=FrameConfig.read(env),
        )
        env.check()
        return config
