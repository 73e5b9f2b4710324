"""Checking a job.json against its JSON Schema and against what this server can run.

Messages never repeat the values found: ``env`` may hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from mingora_api.domain.problems import Problem, Problems

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("job.schema.json").read_text(encoding="utf-8"))
FEATURES = ("jobs", "logs", "groups")

# Far more than any valid job has (a few hundred values); what is larger isn't worth a schema's time.
MAX_VALUES = 1000
MAX_DEPTH = 8

_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")

_UNSUPPORTED = f"isn't supported yet by this server (it has: {', '.join(FEATURES)})"
# That stays so: it isn't a matter of this server's age.
_NOT_IN_A_CONTAINER = (
    'must be "native" with training.algorithm "gradient_sharded", which exchanges through the platform\'s objects: '
    "no credential of the platform enters a container"
)
_TYPES = {
    "object": "an object", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip


def check_spec(spec: dict[str, Any], problems: Problems) -> None:
    """Add what is wrong with ``spec`` to ``problems``; what the schema refuses by name is named."""
    before = len(problems)
    problems.extend(_unreadable(spec))
    if len(problems) == before:
        problems.extend(problem for error in _VALIDATOR.iter_errors(spec) for problem in _explain(error))
    if len(problems) == before:
        problems.extend(_beyond_this_server(spec))


def _beyond_this_server(spec: dict[str, Any]) -> Iterator[Problem]:
    algorithm = spec.get("training", {}).get("algorithm")
    if algorithm == "gradient_sharded" and spec.get("runtime") == "docker":
        yield Problem("runtime", _NOT_IN_A_CONTAINER)
    elif algorithm is not None:
        yield Problem("training.algorithm", _UNSUPPORTED)
    if "resumeFrom" in spec:
        yield Problem("resumeFrom", _UNSUPPORTED)


def _whole_pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    # JSON Schema's `$` is the end; Python's also matches before a last line feed. Every pattern here is anchored.
    if isinstance(instance, str) and re.fullmatch(pattern, instance) is None:
        yield ValidationError("")


def _is_integer(_checker: Any, instance: Any) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


_VALIDATOR = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"pattern": _whole_pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)(SCHEMA)


def _explain(error: ValidationError) -> Iterator[Problem]:
    where, instance = _path(error.absolute_path), cast(Any, error.instance)
    rule, value, schema = str(error.validator), cast(Any, error.validator_value), error.schema
    assert isinstance(schema, dict)
    if rule == "additionalProperties":
        for name in sorted(set(instance) - set(schema.get("properties", {}))):
            yield Problem(_join(where, name), "isn't a known field")
    elif rule == "required":
        # The library reports each missing name apart; its message begins with the name in quotes.
        name = next(name for name in value if error.message.startswith(repr(name)))
        yield Problem(_join(where, name), "is missing")
    elif "propertyNames" in error.absolute_schema_path:
        yield Problem(_join(where, str(instance)), schema.get("description", "isn't an allowed name"))
    else:
        yield Problem(where, _message(rule, value, schema))


def _message(rule: str, value: Any, schema: dict[str, Any]) -> str:
    if rule == "type":
        kinds = value if isinstance(value, list) else [value]
        return "must be " + " or ".join(_TYPES[kind] for kind in kinds)
    if rule == "pattern":
        return str(schema.get("description", f"must match {value}"))
    return {
        "const": f"must be {json.dumps(value)}",
        "enum": f"must be one of {json.dumps(value)}",
        "minLength": "is too short" if value != 1 else "is empty",
        "maxLength": f"has more than {value} characters",
        "minItems": "is empty",
        "maxItems": f"has more than {value} items",
        "uniqueItems": "names something twice",
        "maxProperties": f"has more than {value} members",
        "minimum": f"must be {value} or more",
        "maximum": f"must be {value} or less",
        "exclusiveMinimum": f"must be more than {value}",
    }[rule]


def _unreadable(spec: dict[str, Any]) -> Iterator[Problem]:
    """What no schema has to look at: too many values, too deep, or text that can't be stored."""
    count, left = 0, [("", cast(Any, spec), MAX_DEPTH)]
    while left:
        path, value, depth = left.pop()
        children = _children(path, value)
        count += 1 + len(children)
        if count > MAX_VALUES:
            yield Problem("", f"has more than {MAX_VALUES} values")
            return
        if children and depth == 0:
            yield Problem(path, "is nested too deeply")
            return
        texts = value if isinstance(value, dict) else [value]
        if any(isinstance(text, str) and _BAD_TEXT.search(text) for text in texts):
            yield Problem(path, "has text that isn't valid UTF-8, or a NUL")
        left += [(where, child, depth - 1) for where, child in children]


def _children(path: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, (list, dict)):
        return []
    if isinstance(value, list):
        return [(f"{path}[{index}]", item) for index, item in enumerate(value[: MAX_VALUES + 1])]
    return [(_join(path, name), item) for name, item in islice(value.items(), MAX_VALUES + 1)]


def _path(parts: Any) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, part)
    return path


def _join(path: str, name: str) -> str:
    return (f"{path}.{name}" if path else name)[:200]
