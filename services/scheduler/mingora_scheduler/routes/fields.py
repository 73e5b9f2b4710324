"""Reading the members of a JSON body: each function returns a checked value or refuses the field by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from mingora_common.errors import INVALID_REQUEST, ServiceError

Body = Mapping[str, Any]
DIGEST = r"sha256:[0-9a-f]{64}"
SHA256 = r"[0-9a-f]{64}"
PROFILE_NAME = r"[A-Za-z][A-Za-z0-9]{0,39}"
# Numbers up to 2^53: every reader of JSON takes whole ones of them as they are.
MAX_PROFILE, MAX_PROFILE_TEXT, MAX_PROFILE_NUMBER = 40, 200, 2**53
_PRINTABLE = r"[^\x00-\x1f\x7f\ud800-\udfff]*"


def refuse(field: str, what: str) -> NoReturn:
    """400 that names the field."""
    raise ServiceError(INVALID_REQUEST, f"{field} must be {what}.", field=field)


@contextmanager
def within(field: str) -> Iterator[None]:
    """Names of members that are refused inside get ``field.`` before them."""
    try:
        yield
    except ServiceError as error:
        name = f"{field}.{error.fields['field']}"
        raise ServiceError(INVALID_REQUEST, f"{field}.{error.message}", field=name) from None


def text(body: Body, field: str, longest: int, *, shortest: int = 1, pattern: str = _PRINTABLE) -> str:
    """A text of that many characters without control characters, or that matches ``pattern``."""
    value = body.get(field)
    if not isinstance(value, str) or not shortest <= len(value) <= longest or not re.fullmatch(pattern, value):
        refuse(field, f"a text of {shortest} to {longest} allowed characters")
    return value


def optional_text(body: Body, field: str, longest: int, *, pattern: str = _PRINTABLE) -> str | None:
    """As :func:`text`; null and absent are None."""
    return None if body.get(field) is None else text(body, field, longest, pattern=pattern)


def number(body: Body, field: str, minimum: int, maximum: int) -> int:
    """A whole number within bounds."""
    value = body.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        refuse(field, f"a whole number from {minimum} to {maximum}")
    return value


def optional_number(body: Body, field: str, minimum: int, maximum: int) -> int | None:
    """As :func:`number`; null and absent are None."""
    return None if body.get(field) is None else number(body, field, minimum, maximum)


def flag(body: Body, field: str, *, default: bool | None = None) -> bool:
    """true or false; absent is the default, if there is one."""
    value = body.get(field, default)
    if not isinstance(value, bool):
        refuse(field, "true or false")
    return value


def texts(body: Body, field: str, most: int, longest: int, *, pattern: str = _PRINTABLE) -> list[str]:
    """A list of different texts; absent is empty."""
    value = body.get(field, [])
    fits = isinstance(value, list) and len(value) <= most
    fits = fits and all(isinstance(each, str) and re.fullmatch(pattern, each) for each in value)
    if not fits or not all(1 <= len(each) <= longest for each in value) or len(set(value)) != len(value):
        refuse(field, f"a list of at most {most} different texts of 1 to {longest} allowed characters")
    return list(value)


def members(body: Body, field: str, known: tuple[str, ...]) -> dict[str, Any]:
    """An object of which only the members ``known`` are known."""
    value = body.get(field)
    if not isinstance(value, dict):
        refuse(field, "an object")
    unknown = sorted(set(value) - set(known))
    if unknown:
        name = f"{field}.{unknown[0][:100]}"
        raise ServiceError(INVALID_REQUEST, f"Unknown field: {name}", field=name)
    return value


def measures(body: Body, field: str, known: tuple[str, ...]) -> dict[str, float]:
    """An object of finite numbers, 0 or more; absent and null are empty, and so are its members."""
    if body.get(field) is None:
        return {}
    found = {name: value for name, value in members(body, field, known).items() if value is not None}
    for value in found.values():
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e15
        if not whole or not math.isfinite(value):
            refuse(field, "an object of numbers, 0 or more")
    return found


def profile(body: Body, field: str) -> dict[str, Any] | None:
    """An isolation profile: a flat object of texts, finite numbers, flags and nulls; null and absent are None."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_PROFILE:
        refuse(field, f"null or an object of at most {MAX_PROFILE} members")
    for name, entry in value.items():
        if not re.fullmatch(PROFILE_NAME, name):
            refuse(field, "an object with names of 1 to 40 letters and digits, a letter first")
        if not _fits_profile(entry):
            what = f"a text of at most {MAX_PROFILE_TEXT} allowed characters, a number up to 2^53, true, false or null"
            with within(field):
                refuse(name, what)
    return dict(value)


def _fits_profile(entry: object) -> bool:
    if isinstance(entry, str):
        return len(entry) <= MAX_PROFILE_TEXT and re.fullmatch(_PRINTABLE, entry) is not None
    return entry is None or (isinstance(entry, (bool, int, float)) and abs(entry) <= MAX_PROFILE_NUMBER)
