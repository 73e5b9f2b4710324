"""The forms of the protocol's JSON answers: what is wrong with a value, or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_DIGEST = re.compile("[0-9a-f]{64}")
Form = Callable[[Any], bool]


def is_count(value: Any) -> bool:
    """A whole number from 0 that every reader of JSON reads alike."""
    return type(value) is int and 0 <= value <= 2**53


def is_positive(value: Any) -> bool:
    """A whole number from 1."""
    return is_count(value) and value != 0


def is_number(value: Any) -> bool:
    """A finite number."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) <= 2**53)


def is_digest(value: Any) -> bool:
    """A SHA-256 as 64 lower-case hex characters."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def is_names(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


def is_ages(value: Any) -> bool:
    """Seconds by name."""
    return isinstance(value, dict) and all(is_number(age) and age >= 0 for age in value.values())


def is_traffic(value: Any) -> bool:
    """The two counters of bytes."""
    return isinstance(value, dict) and is_count(value.get("indirilen_bayt")) and is_count(value.get("yuklenen_bayt"))


STATE: Mapping[str, Form] = {
    "tur": is_count,
    "toplam_tur": is_count,
    "bekleyen_sonuc": is_names,
    "ozet": is_text,
    "isciler": is_ages,
    "trafik": is_traffic,
    "gunluk": lambda value: isinstance(value, list),
}
TASK: Mapping[str, Form] = {
    "tur": is_count,
    "toplam_tur": is_positive,
    "parca": is_count,
    "n_parca": is_positive,
    "ic_adim": is_positive,
    "bs": is_positive,
    "seq": is_positive,
    "lr": lambda value: is_number(value) and value >= 0,
    "tohum": lambda value: type(value) is int and abs(value) <= 2**64,
    "agirlik_sha256": is_digest,
}
INFORMATION: Mapping[str, Form] = {
    "uygulama": is_text,
    "surum": is_text,
    "tur": is_count,
    "toplam_tur": is_count,
    "taban_model": is_text,
    "adaptor": lambda value: isinstance(value, dict),
    "agirlik_boyutu": is_count,
    "agirlik_sha256": is_digest,
    "anahtar_gerekli": lambda value: isinstance(value, bool),
}


def wrong_fields(value: Mapping[str, Any], forms: Mapping[str, Form]) -> list[str]:
    """The fields that are missing or have another form than ``forms`` says. More fields are no fault."""
    return [name for name, form in forms.items() if name not in value or not form(value[name])]
