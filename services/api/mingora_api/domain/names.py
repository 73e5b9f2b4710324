"""Names of accounts and tenants, and what a password must be."""

from __future__ import annotations

import unicodedata

MAX_NAME_CHARACTERS = 100
MIN_PASSWORD_CHARACTERS = 8
MAX_PASSWORD_BYTES = 1024


def normal(name: str) -> str:
    """The one spelling of a name that is stored and looked up (NFC): input methods differ in how they compose."""
    return unicodedata.normalize("NFC", name)


def name_problem(name: str) -> str | None:
    """Why ``name`` can't be an account's or a tenant's, or None when it can."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        return f"a name has 1 to {MAX_NAME_CHARACTERS} characters"
    if name != normal(name):
        return "the name isn't in Unicode's composed form (NFC)"
    if not name[0].isalnum():
        return "a name begins with a letter or a digit"
    if not all(_allowed(character) for character in name):
        return "a name has only letters (of any script), digits, '.', '_' and '-'"
    return None


def password_problem(password: str) -> str | None:
    """Why ``password`` isn't acceptable, or None when it is."""
    if len(password) < MIN_PASSWORD_CHARACTERS:
        return f"a password has at least {MIN_PASSWORD_CHARACTERS} characters"
    try:
        size = len(password.encode("utf-8"))
    except UnicodeEncodeError:
        return "the password isn't valid UTF-8"
    if size > MAX_PASSWORD_BYTES:
        return f"a password has at most {MAX_PASSWORD_BYTES} bytes"
    return None


def _allowed(character: str) -> bool:
    return character in "._-" or unicodedata.category(character) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd")
