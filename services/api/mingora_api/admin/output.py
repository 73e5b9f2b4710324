"""What ``mingora-admin`` prints: a table or lines for people, one JSON object with ``--json``."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from mingora_common.clock import rfc3339

JSON_SCHEMA_VERSION = 1


class Output:
    """Prints results on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def result(self, text: str, **members: Any) -> None:
        """One thing that was done: ``text`` for people, ``members`` for programs."""
        self._print(members, [text])

    def table(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Rows that all have the same members; those of the first are the columns."""
        lines = [[_cell(value) for value in row.values()] for row in rows]
        if lines:
            lines.insert(0, [_heading(member) for member in rows[0]])
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        aligned = ("  ".join(map(_padded, line, widths)) for line in lines)
        self._print({name: list(rows)}, [line.rstrip() for line in aligned] or [f"No {name}."])

    def _print(self, members: dict[str, Any], lines: list[str]) -> None:
        if self._as_json:
            print(json.dumps({"schemaVersion": JSON_SCHEMA_VERSION, **members}, ensure_ascii=False))
        else:
            print("\n".join(lines))


def note(text: str) -> None:
    """Something for people beside the result, on stderr."""
    print(text, file=sys.stderr)


def when(milliseconds: int | None) -> str | None:
    """A stored time as people read it."""
    return None if milliseconds is None else rfc3339(milliseconds)


def _heading(member: str) -> str:
    return "".join(f" {character}" if character.isupper() else character for character in member).upper()


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    # Names of tokens are their owners' text: nothing in them may steer the operator's terminal.
    return "".join(character if character.isprintable() else "?" for character in text)
