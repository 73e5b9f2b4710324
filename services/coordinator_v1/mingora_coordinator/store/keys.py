"""Who may speak: a key that all share, and keys that each belong to one nickname. Of keys only digests are stored."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from mingora_coordinator.store import durable

_BYTES = 32


class KeysError(Exception):
    """The file of keys is damaged; the text names it."""


class Keys:
    """The keys. A key that ``mingora-coordinator key`` adds or removes counts at once, also for a running server.

    Args:
        path: the file of the nicknames' keys; there may be none.
        shared: the key that all share, or None.
    """

    def __init__(self, path: Path, shared: str | None = None) -> None:
        self.path = path
        self._shared = None if shared is None else _digest(shared)
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._bound: dict[str, str] = {}

    @property
    def needed(self) -> bool:
        """Whether anything but ``/bilgi`` is refused without a key.

        That stays so when the last nickname's key is taken away: nobody is let in by what was meant to keep one out.
        """
        return self._shared is not None or self.path.exists()

    @property
    def readable(self) -> bool:
        """Whether the file of keys can be read, or isn't there."""
        try:
            self._current()
        except KeysError:
            return False
        return True

    def opens(self, given: str | None, worker: str | None = None) -> bool:
        """Whether ``given`` may speak, as ``worker`` if that is named: a nickname with a key of its own needs that one.

        All keys are compared, each in constant time.
        """
        if not self.needed:
            return True
        bound = self._current()
        digest = _digest(given or "")
        owners = [name for name, own in bound.items() if hmac.compare_digest(own, digest)]
        shared = self._shared is not None and hmac.compare_digest(self._shared, digest)
        if worker is None:
            return shared or bool(owners)
        return worker in owners if worker in bound else shared

    def names(self) -> list[str]:
        """Nicknames that have a key of their own."""
        return sorted(self._current())

    def add(self, name: str) -> str:
        """A new key for ``name``, which replaces an older one. It is shown this once."""
        key = secrets.token_urlsafe(_BYTES)
        with self._changing():
            self._write({**self._read_now(), name: _digest(key)})
        return key

    def remove(self, name: str) -> bool:
        """Take the key of ``name`` away; False when it had none."""
        with self._changing():
            known = self._read_now()
            if name not in known:
                return False
            self._write({other: digest for other, digest in known.items() if other != name})
        return True

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Two commands at once would each lose what the other wrote."""
        with self.path.with_name(self.path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read_now(self) -> dict[str, str]:
        return self._read() if self.path.exists() else {}

    def _current(self) -> dict[str, str]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return {}
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        with self._lock:
            if seen != self._seen:
                self._bound, self._seen = self._read(), seen
            return self._bound

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self.path.read_bytes())["keys"]
            return {str(name): str(digest) for name, digest in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise KeysError(f"{self.path} can't be read: {error.__class__.__name__}") from error

    def _write(self, bound: dict[str, str]) -> None:
        durable.replace(self.path, json.dumps({"schemaVersion": 1, "keys": bound}, indent=1).encode())


def _digest(key: str) -> str:
    # The keys are random: nothing slower than one digest is needed. Of a shared key the operator is told the same.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
