"""Who may speak: a key that all share, and keys that each belong to one nickname. Of keys only digests are stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
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
        self._path = path
        self._shared = None if shared is None else _digest(shared)
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._bound: dict[str, str] = {}

    @property
    def needed(self) -> bool:
        """Whether anything but ``/bilgi`` is refused without a key."""
        return self._shared is not None or bool(self._current())

    def opens(self, given: str | None, worker: str | None = None) -> bool:
        """Whether ``given`` may speak, as ``worker`` if that is named: a nickname with a key of its own needs that one.

        All keys are compared, each in constant time.
        """
        bound = self._current()
        if self._shared is None and not bound:
            return True
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
        self._write({**self._current(), name: _digest(key)})
        return key

    def remove(self, name: str) -> bool:
        """Take the key of ``name`` away; False when it had none."""
        left = {other: digest for other, digest in self._current().items() if other != name}
        if len(left) == len(self._current()):
            return False
        self._write(left)
        return True

    def _current(self) -> dict[str, str]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        with self._lock:
            if seen != self._seen:
                self._bound, self._seen = self._read(), seen
            return self._bound

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_bytes())["keys"]
            return {str(name): str(digest) for name, digest in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise KeysError(f"{self._path} can't be read: {error.__class__.__name__}") from error

    def _write(self, bound: dict[str, str]) -> None:
        durable.replace(self._path, json.dumps({"schemaVersion": 1, "keys": bound}, indent=1).encode())


def _digest(key: str) -> str:
    # The keys are random: nothing slower than one digest is needed. Of a shared key the operator is told the same.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
