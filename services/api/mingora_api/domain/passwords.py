"""Passwords by Argon2id, at most a few at a time, and with the same work for names that don't exist."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher
from argon2.exceptions import HashingError, InvalidHashError, VerificationError, VerifyMismatchError

from mingora_common.errors import UNAVAILABLE, ServiceError

AT_ONCE = 2
PATIENCE_SECONDS = 5.0


class Passwords:
    """Hashes and verifies.

    One verification takes 64 MiB and a tenth of a second of several cores (argon2-cffi's standard, RFC 9106's
    low-memory profile), so no more than ``AT_ONCE`` run in a process; who waits longer than ``PATIENCE_SECONDS`` is
    told ``unavailable``.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._nobodys = self._hasher.hash(secrets.token_urlsafe(16))

    def hash(self, password: str) -> str:
        """The text to store for ``password``."""
        with self._place():
            return self._hasher.hash(password)

    def verify(self, stored: str | None, password: str) -> bool:
        """Whether ``password`` matches; for an unknown account (``stored`` is None) the work is the same."""
        with self._place():
            try:
                matches = self._hasher.verify(stored or self._nobodys, password)
            except (VerifyMismatchError, InvalidHashError):
                return False
        return matches and stored is not None

    def outdated(self, stored: str) -> bool:
        """Whether ``stored`` was made with other parameters than today's."""
        return self._hasher.check_needs_rehash(stored)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=PATIENCE_SECONDS):
            raise ServiceError(UNAVAILABLE, retry_after=1)
        try:
            yield
        except (HashingError, VerificationError) as error:
            # No memory or no thread to be had: that says nothing about the password.
            raise ServiceError(UNAVAILABLE, retry_after=1) from error
        finally:
            self._places.release()
