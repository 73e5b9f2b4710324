"""The body of a report, parsed; and its digest, by which the same report is known again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mingora_common.filepaths import collision, path_problem
from mingora_common.ids import is_id
from mingora_scheduler.domain.attempt import Outcome, Reason, Report
from mingora_scheduler.domain.leases import LOG_CAP_BYTES, MAX_RESULTS
from mingora_scheduler.routes import fields

FIELDS = (
    "leaseId", "attempt", "outcome", "reason", "exitCode", "signal", "logBytes", "results", "usage", "warnings",
)  # fmt: skip
USAGE = ("cpuSeconds", "memoryMiB", "maxMemoryMiB")
# What only the platform finds out (lease_lost, ready_deadline, not_claimed) is no reason that a worker may give.
REASONS = frozenset(
    {
        "exit_code", "signal", "memory_exceeded", "timed_out", "command_not_found", "input_corrupt",
        "inputs_unavailable", "quota_exceeded", "result_refused", "worker_stopped", "worker_error", "disk_full",
        "cancelled", "peer_failed", "ready_deadline", "output_limit", "log_limit", "engine_lost",
    }
)  # fmt: skip
MAX_MESSAGE, MAX_WARNINGS = 2000, 20
_FILE = ("path", "objectId", "size", "sha256", "executable")


def report(body: fields.Body) -> tuple[Report, int]:
    """A report and the size of its log; raises ``invalid_request`` naming the field."""
    outcome = body.get("outcome")
    if outcome not in tuple(Outcome):
        fields.refuse("outcome", "succeeded, failed or cancelled")
    parsed = Report(
        outcome=Outcome(outcome),
        reason=_reason(body),
        exit_code=fields.optional_number(body, "exitCode", -(2**31), 2**31 - 1),
        signal=fields.optional_number(body, "signal", 1, 255),
        results=tuple(_results(body)),
        usage=fields.measures(body, "usage", USAGE),
        warnings=warnings(body),
    )
    return parsed, fields.number(body, "logBytes", 0, LOG_CAP_BYTES)


def digest(body: fields.Body) -> str:
    """SHA-256 (hex) of a report's canonical JSON."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def warnings(body: fields.Body) -> tuple[str, ...]:
    """What a rank wants the job's owner to know; absent is empty, and what is too many or too long is cut."""
    found = body.get("warnings", [])
    if not isinstance(found, list):
        fields.refuse("warnings", "a list of texts")
    return tuple(_message(text, "warnings") for text in found)[:MAX_WARNINGS]


def _reason(body: fields.Body) -> Reason | None:
    if body.get("reason") is None:
        return None
    reason = fields.members(body, "reason", ("code", "message"))
    code = reason.get("code")
    if not isinstance(code, str) or code not in REASONS:
        fields.refuse("reason", "null, or one of the reasons that a worker can give")
    return Reason(code, _message(reason.get("message"), "reason"))


def _message(text: object, field: str) -> str:
    """A text for people; what is too long of it is cut, and what no database takes is replaced."""
    if not isinstance(text, str):
        fields.refuse(field, "made of texts")
    return text[:MAX_MESSAGE].replace("\x00", "�").encode("utf-8", "replace").decode()


def _results(body: fields.Body) -> list[dict[str, Any]]:
    entries = body.get("results", [])
    if not isinstance(entries, list) or len(entries) > MAX_RESULTS:
        fields.refuse("results", f"a list of at most {MAX_RESULTS} file entries")
    with fields.within("results"):
        results = [_entry(entry) for entry in entries]
    clash = collision(entry["path"] for entry in results)
    if clash is not None:
        fields.refuse("results", f"without clashing paths ({clash[0]} and {clash[1]} clash)")
    known: dict[str, tuple[str, int]] = {}
    for entry in results:
        content = (entry["sha256"], entry["size"])
        if known.setdefault(entry["objectId"], content) != content:
            fields.refuse("results", "without one object under two digests")
    return results


def _entry(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict) or set(entry) != set(_FILE):
        fields.refuse("entry", f"an object of exactly {', '.join(_FILE)}")
    path = entry["path"]
    problem = path_problem(path) if isinstance(path, str) else "isn't a text"
    if problem is not None:
        fields.refuse("path", f"a path inside the project, but one {problem}")
    if not is_id("obj", entry["objectId"]):
        fields.refuse("objectId", "an object's id")
    return {
        "path": path,
        "objectId": entry["objectId"],
        "size": fields.number(entry, "size", 0, 2**53),
        "sha256": fields.text(entry, "sha256", 64, pattern=fields.SHA256),
        "executable": fields.flag(entry, "executable"),
    }
