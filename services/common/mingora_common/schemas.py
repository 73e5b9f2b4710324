"""Pieces of JSON Schema that several services' OpenAPI documents are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mingora_common.wake import MAX_WAIT_SECONDS

Schema = Mapping[str, Any]

SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TIME: Schema = {
    "type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"
}  # fmt: skip
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53}
FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
BYTES: Schema = {"type": "string", "format": "binary"}
WAIT: Schema = {"type": "number", "minimum": 0, "maximum": int(MAX_WAIT_SECONDS)}


def identifier(prefix: str) -> Schema:
    """An id such as ``job_…`` (``ids.is_id``)."""
    return {"type": "string", "pattern": f"^{prefix}_[A-Za-z0-9_-]{{8,64}}$"}


def number(minimum: int, maximum: int) -> Schema:
    """A whole number within bounds."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def text(longest: int, *, shortest: int = 0, pattern: str | None = None) -> Schema:
    """A text of that many characters."""
    return {"type": "string", "minLength": shortest, "maxLength": longest, **({"pattern": pattern} if pattern else {})}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def listed(items: Schema, *, shortest: int = 0, longest: int | None = None, different: bool = False) -> Schema:
    """A list."""
    return {
        "type": "array",
        "items": items,
        **({"minItems": shortest} if shortest else {}),
        **({"maxItems": longest} if longest is not None else {}),
        **({"uniqueItems": True} if different else {}),
    }


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object of these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def nullable(schema: Schema) -> Schema:
    """That, or null."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


# docs/protocol.md, "A file entry". That paths have no "." or ".." component, and no two clash, is checked besides.
FILE_ENTRY = record(
    {
        "path": text(1024, shortest=1, pattern=r"^[^\\\x00-\x1f\x7f-\x9f]+$"),
        "objectId": identifier("obj"),
        "size": COUNT,
        "sha256": SHA256,
        "executable": FLAG,
    }
)
