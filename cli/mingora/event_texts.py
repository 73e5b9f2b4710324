"""A job's event as one line for people; programs take the event itself (`--json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mingora.api_texts import reason_text, state_text
from mingora.i18n import _
from mingora.output import time_text


def event_text(event: Mapping[str, Any]) -> str:
    """Number, local time, type, and what the event says."""
    head = f"{event['seq']:>4}  {time_text(event['at'])}  {event['type']:<20}"
    return f"{head}  {', '.join(_details(event['data'] or {}))}".rstrip()


def _details(data: Mapping[str, Any]) -> list[str]:
    """The data's fields in the order in which people ask for them; a field unknown here is shown as it came."""
    rest = {name: value for name, value in data.items() if value is not None}
    found = []
    if (attempt := rest.pop("attempt", None)) is not None:
        found.append(_("attempt {number}").format(number=attempt))
    if isinstance(rest.get("ranks"), list):
        rest["nodeName"] = " ".join(str(rank.get("nodeName")) for rank in rest.pop("ranks"))
    if rank := rest.pop("rank", 0):
        found.append(_("rank {number}").format(number=rank))
    if (name := rest.pop("nodeName", None)) is not None:
        found.append(str(name))
        rest.pop("nodeId", None)
    found += [state_text(str(rest.pop(field))) for field in ("state", "outcome") if field in rest]
    reason = rest.pop("reason", None)
    if isinstance(reason, dict):
        found.append(reason_text(reason))
        rest = {field: value for field, value in rest.items() if field not in {"exitCode", "signal"}}
    if (code := rest.pop("exitCode", None)) is not None:
        found.append(_("exit code {code}").format(code=code))
    if (message := rest.pop("message", None)) is not None:
        found.append(str(message))
    if (wait := rest.pop("inSeconds", None)) is not None:
        found.append(_("in {seconds} s").format(seconds=round(wait)))
    return found + [f"{field}={_plain(value)}" for field, value in rest.items()]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
