"""Reading a service's settings from the environment, once, with every problem told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from mingora_common import faults, proxies

# What people write into a template for somebody to replace.
_PLACEHOLDERS = ("changeme", "change-me", "change_me", "default", "example", "insecure", "password", "secret")
LEAST_SECRET = 32
LEAST_PASSWORD = 16
_LEAST_DISTINCT = 10


class ConfigError(Exception):
    """The environment doesn't make a usable configuration; the message lists every problem and its fix."""


def weakness(secret: str, minimum: int = LEAST_SECRET) -> str | None:
    """Why ``secret`` mustn't be used, or None. It isn't repeated in the answer."""
    if len(secret) < minimum:
        return f"is too short: use at least {minimum} random characters"
    if len(set(secret)) < _LEAST_DISTINCT or any(word in secret.lower() for word in _PLACEHOLDERS):
        return f"is a placeholder or easily guessed: use at least {minimum} random characters"
    return None


def _redis_problem(text: str) -> str | None:
    try:
        url = urlsplit(text)
        network = bool(url.hostname) and url.port != 0
    except ValueError:
        network, url = False, urlsplit("")
    if url.scheme == "unix" and url.path:
        return None
    if url.scheme not in ("redis", "rediss") or not network:
        return "isn't an address of Redis: write redis://:password@host:6379/0 or unix:///path/redis.sock"
    if not url.password:
        return "has no password, and whoever reaches the port could steer the scheduler: set requirepass, and name it"
    weak = weakness(unquote(url.password), LEAST_PASSWORD)
    return None if weak is None else f"has a password that {weak}"


class Env:
    """A reader that collects problems instead of stopping at the first.

    For each NAME, ``NAME_FILE`` may name a file that holds the value (how secrets are mounted).
    Call :meth:`check` when all has been read.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._problems: list[str] = []

    def text(self, name: str, default: str | None = None) -> str:
        """A value, or its default; without a default it is required."""
        value = self._read(name)
        if value is None or value == "":
            if default is None:
                self._problems.append(f"{name} is not set")
                return ""
            return default
        return value

    def optional(self, name: str) -> str | None:
        """A value that may be absent."""
        return self._read(name) or None

    def secret(self, name: str) -> str:
        """A required secret that isn't weak (:func:`weakness`); there is no default."""
        return self._strong(name, self.text(name))

    def optional_secret(self, name: str) -> str | None:
        """A secret that may be absent, but not weak."""
        value = self.optional(name)
        return None if value is None else self._strong(name, value)

    def database_url(self) -> str:
        """The required ``DATABASE_URL``, which must be of an engine that there is."""
        from mingora_common.db.reach import url_problem  # a process without a database does without its libraries

        value = self.text("DATABASE_URL")
        problem = url_problem(value) if value else None
        if problem is not None:
            self._problems.append(f"DATABASE_URL {problem}")
        return value

    def redis_url(self) -> str:
        """The required ``REDIS_URL``: a Unix socket, or an address with a password that isn't easily guessed."""
        value = self.text("REDIS_URL")
        problem = _redis_problem(value) if value else None
        if problem is not None:
            self._problems.append(f"REDIS_URL {problem}")
        return value

    def integer(self, name: str, default: int, *, minimum: int = 0, maximum: int = 2**53) -> int:
        """A whole number within bounds."""
        value = self._read(name)
        if value is None or value == "":
            return default
        try:
            number = int(value)
        except ValueError:
            self._problems.append(f"{name} must be a whole number, not {value!r}")
            return default
        if not minimum <= number <= maximum:
            self._problems.append(f"{name} must be between {minimum} and {maximum}")
        return number

    def flag(self, name: str) -> bool:
        """``1``/``true`` or ``0``/``false``; absent is false."""
        value = (self._read(name) or "0").lower()
        if value not in ("0", "1", "true", "false"):
            self._problems.append(f"{name} must be 0 or 1")
        return value in ("1", "true")

    def networks(self, name: str) -> proxies.Networks:
        """A list, with commas, of networks and addresses; absent is none."""
        try:
            return proxies.networks(self._read(name) or "")
        except ValueError as error:
            self._problems.append(f"{name} must list networks such as 10.0.0.0/8 or addresses: {error}")
            return ()

    def check(self) -> None:
        """Raise :class:`ConfigError` when anything read was wrong."""
        refusal = faults.refusal(self._environ)
        if refusal is not None:
            self._problems.append(refusal)
        if self._problems:
            raise ConfigError("; ".join(self._problems))

    def _strong(self, name: str, secret: str) -> str:
        weak = weakness(secret) if secret else None
        if weak:
            self._problems.append(f"{name} {weak}")
        return secret

    def _read(self, name: str) -> str | None:
        path = self._environ.get(name + "_FILE")
        if path is None:
            return self._environ.get(name)
        if name in self._environ:
            self._problems.append(f"{name} and {name}_FILE are both set")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self._problems.append(f"{name}_FILE can't be read: {error.__class__.__name__}")
            return None


@dataclass(frozen=True, slots=True)
class FrameConfig:
    """What every service's HTTP frame is told.

    Attributes:
        metrics_key: ``MINGORA_METRICS_KEY``, the secret that opens ``/metrics``; without it there is none.
        trusted_proxies: ``MINGORA_TRUSTED_PROXIES``, whose word on a client's address counts.
    """

    metrics_key: str | None = field(default=None, repr=False)
    trusted_proxies: proxies.Networks = ()

    @classmethod
    def read(cls, env: Env) -> Self:
        """Read the settings; problems are ``env``'s to tell."""
        return cls(
            metrics_key=env.optional_secret("MINGORA_METRICS_KEY"),
            trusted_proxies=env.networks("MINGORA_TRUSTED_PROXIES"),
        )
