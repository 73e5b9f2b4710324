"""Reads a project's job.json strictly: what a lax parser would let pass silently is reported with its place (CLI-4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mingora import schema
from mingora.errors import ProjectError
from mingora.i18n import _
from mingora.ignore import JOB_FILE

MAX_BYTES = 1024 * 1024


def read(root: Path) -> dict[str, Any]:
    """The object in `root/job.json`. Raises `ProjectError` naming line and column of what isn't JSON."""
    path = root / JOB_FILE
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ProjectError(
            _("{path} does not exist.").format(path=path), hint=_("Make a project with: mingora init DIR")
        ) from error
    except OSError as error:
        raise ProjectError(_("{path} can't be read: {reason}").format(path=path, reason=error.strerror)) from error
    if len(raw) > MAX_BYTES:
        raise ProjectError(_("{path} is too long.").format(path=path))
    try:
        return parse(raw)
    except ProjectError as error:
        raise ProjectError(f"{path}: {error.message}", hint=error.hint) from error


def parse(raw: bytes) -> dict[str, Any]:
    """Parses job.json's bytes; a byte order mark at the start is passed over."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProjectError(
            _("not UTF-8 at byte {place}").format(place=error.start), hint=_("Save the file as UTF-8.")
        ) from error
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ProjectError(
            _("not JSON at line {line}, column {column}: {reason}").format(
                line=error.lineno, column=error.colno, reason=error.msg
            ),
            hint=_habit(text, error.pos),
        ) from error
    except RecursionError as error:
        raise ProjectError(_("nested too deeply")) from error
    except ValueError as error:
        raise ProjectError(_("not JSON: {reason}").format(reason=error)) from error
    if not isinstance(value, dict):
        raise ProjectError(_("must be an object: {example}").format(example="{…}"))
    return value


def _habit(text: str, place: int) -> str | None:
    """What other languages allow and JSON doesn't, when that is what stands at the place of an error."""
    rest = text[place:].lstrip(", \t\r\n")
    if rest.startswith(("//", "/*", "#")):
        return _("JSON has no comments.")
    if rest.startswith(("}", "]")) and "," in text[place:][:1] + text[:place].rstrip()[-1:]:
        return _("JSON has no comma after the last entry.")
    return _("JSON's strings stand in double quotes.") if rest.startswith("'") else None


def check(spec: Mapping[str, Any], job_schema: Mapping[str, Any]) -> None:
    """Raises `ProjectError` listing everything in `spec` that the server's schema refuses."""
    found = schema.problems(dict(spec), job_schema)
    if found:
        lines = "".join(f"\n  {where}: {text}" for where, text in found[:20])
        raise ProjectError(_("job.json can't be submitted:") + lines, problems=found)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ProjectError(_("the field {name} is there twice").format(name=json.dumps(name, ensure_ascii=False)))
        result[name] = value
    return result


def _refuse_constant(name: str) -> Any:
    raise ProjectError(_("{value} is not a JSON number").format(value=name))


def _finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        _refuse_constant(text)
    return value
