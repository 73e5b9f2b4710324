"""A machine out of memory or threads says nothing about a password."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import HashingError, VerificationError

from mingora_api.domain.passwords import AT_ONCE, Passwords
from mingora_common.errors import ServiceError


class Starved(PasswordHasher):
    """A hasher that libargon2 refuses a thread, once the passwords' own start is over."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.starved = False

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        if self.starved:
            raise HashingError("Threading failure")
        return super().hash(password, salt=salt)

    def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]
        if self.starved:
            raise VerificationError("Threading failure")
        return super().verify(hash, password)


@pytest.mark.req("AUTH-8")
def test_a_right_password_is_not_called_wrong_for_want_of_threads() -> None:
    hasher = Starved()
    passwords = Passwords(hasher)
    stored = passwords.hash("12345678")
    hasher.starved = True
    for _more_than_places in range(AT_ONCE + 1):
        for attempt in (lambda: passwords.verify(stored, "12345678"), lambda: passwords.hash("12345678")):
            with pytest.raises(ServiceError) as caught:
                attempt()
            assert (caught.value.kind.code, caught.value.retry_after) == ("unavailable", 1)
    hasher.starved = False
    assert passwords.verify(stored, "12345678")
    assert not passwords.verify(stored, "87654321")
    assert not passwords.verify("no hash", "12345678")
