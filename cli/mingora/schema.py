"""Checks a value against the part of JSON Schema that job.json's schema uses, and says how to mend it.

The server's `/policy` carries the schema, so a newer server's rules need no newer client. A keyword that this
validator doesn't know is passed over: the server checks again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mingora.i18n import _

Problem = tuple[str, str]
"""Where (`resources.cpu`, `command[0]`; `job.json` for the whole) and what."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
    "number": lambda v: _is_number(v),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


def problems(value: Any, schema: Mapping[str, Any], path: str = "") -> list[Problem]:
    """Every way in which `value` breaks `schema`, in the order of the document."""
    return list(_check(value, schema, path))


def _check(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    where = path or "job.json"
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types or []
    if names and not any(_TYPES[name](value) for name in names):
        yield where, _("must be {type}, is {actual}").format(type=" / ".join(names), actual=_type_name(value))
        return
    if "const" in schema and not _same(value, schema["const"]):
        yield where, _("must be {value}").format(value=_show(schema["const"]))
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        allowed = ", ".join(_show(one) for one in schema["enum"])
        yield where, _("must be one of {allowed}{hint}").format(allowed=allowed, hint=_closest(value, schema["enum"]))
    if isinstance(value, str):
        yield from _check_string(value, schema, where)
    elif isinstance(value, list):
        yield from _check_array(value, schema, path, where)
    elif isinstance(value, dict):
        yield from _check_object(value, schema, path, where)
    elif _is_number(value):
        yield from _check_number(value, schema, where)


def _check_string(value: str, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    if len(value) < schema.get("minLength", 0):
        yield where, _("must not be empty")
    if len(value) > schema.get("maxLength", len(value)):
        yield (
            where,
            _("has {count} characters, {limit} are allowed").format(count=len(value), limit=schema["maxLength"]),
        )
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield where, _("does not have the form {pattern}").format(pattern=schema["pattern"])


def _check_number(value: float, schema: Mapping[str, Any], where: str) -> Iterator[Problem]:
    if "minimum" in schema and value < schema["minimum"]:
        yield where, _("must be at least {limit}").format(limit=schema["minimum"])
    if "maximum" in schema and value > schema["maximum"]:
        yield where, _("must be at most {limit}").format(limit=schema["maximum"])
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield where, _("must be more than {limit}").format(limit=schema["exclusiveMinimum"])


def _check_array(value: list[Any], schema: Mapping[str, Any], path: str, where: str) -> Iterator[Problem]:
    if len(value) < schema.get("minItems", 0):
        yield where, _("needs at least {count} entries").format(count=schema["minItems"])
    if len(value) > schema.get("maxItems", len(value)):
        yield where, _("has {count} entries, {limit} are allowed").format(count=len(value), limit=schema["maxItems"])
    if schema.get("uniqueItems") and any(_same(a, b) for n, a in enumerate(value) for b in value[:n]):
        yield where, _("has an entry twice")
    if "items" in schema:
        for number, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{number}]")


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], path: str, where: str) -> Iterator[Problem]:
    known: Mapping[str, Any] = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            yield where, _("lacks the field {name}").format(name=_show(name))
    if len(value) > schema.get("maxProperties", len(value)):
        yield (
            where,
            _("has {count} entries, {limit} are allowed").format(count=len(value), limit=schema["maxProperties"]),
        )
    for name, item in value.items():
        below = f"{path}.{name}" if path else name
        for _where, text in _check(name, schema.get("propertyNames", {}), below):
            yield below, _("the name {text}").format(text=text)
        if name in known:
            yield from _check(item, known[name], below)
        elif rest is False:
            yield below, _("is not a known field{hint}").format(hint=_closest(name, list(known)))
        elif isinstance(rest, dict):
            yield from _check(item, rest, below)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(a: Any, b: Any) -> bool:
    """JSON equality: 1 is 1.0 and never true."""
    return (type(a) is type(b) and bool(a == b)) or (_is_number(a) and _is_number(b) and bool(a == b))


def _closest(value: Any, known: list[Any]) -> str:
    names = [name for name in known if isinstance(name, str)]
    if not isinstance(value, str):
        return ""
    folded = {name.lower().replace("_", ""): name for name in names}
    found = difflib.get_close_matches(value.lower().replace("_", ""), list(folded), n=1, cutoff=0.6)
    return _(" (did you mean {name}?)").format(name=_show(folded[found[0]])) if found else ""


def _type_name(value: Any) -> str:
    return next(name for name, test in _TYPES.items() if test(value))


def _show(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
