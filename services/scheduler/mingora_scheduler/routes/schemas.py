"""What scheduler takes and answers, as JSON Schema, for its OpenAPI document."""

from __future__ import annotations

from mingora_common.openapi import Answer
from mingora_common.schemas import (
    COUNT,
    FILE_ENTRY,
    FLAG,
    SHA256,
    TEXT,
    TIME,
    WAIT,
    Schema,
    identifier,
    listed,
    nullable,
    number,
    one_of,
    record,
    text,
)
from mingora_scheduler.domain.attempt import Outcome, State
from mingora_scheduler.domain.leases import LOG_CAP_BYTES, MAX_RESULTS
from mingora_scheduler.routes.fields import MAX_PROFILE, MAX_PROFILE_NUMBER, MAX_PROFILE_TEXT, PROFILE_NAME
from mingora_scheduler.routes.records import MAX_DATA, MAX_LABELS, RUNTIMES
from mingora_scheduler.routes.reports import REASONS, USAGE

MAX_ATTEMPT = 2**31 - 1
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_DIGEST: Schema = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_CROWDED: dict[str, Schema] = {"Retry-After": {"type": "string", "pattern": "^[0-9]+$"}}


def _printable(longest: int, shortest: int = 1) -> Schema:
    return text(longest, shortest=shortest, pattern=_PRINTABLE)


_GPU = record(
    {
        "index": number(0, 1023),
        "uuid": _printable(128),
        "name": _printable(200),
        "memoryMiB": number(0, 2**40),
    }
)
_PROFILE: Schema = nullable(
    {
        "type": "object",
        "maxProperties": MAX_PROFILE,
        "propertyNames": {"pattern": f"^{PROFILE_NAME}$"},
        "additionalProperties": {
            "anyOf": [
                _printable(MAX_PROFILE_TEXT, 0),
                {"type": "number", "minimum": -MAX_PROFILE_NUMBER, "maximum": MAX_PROFILE_NUMBER},
                FLAG,
                {"type": "null"},
            ]
        },
    }
)
_LABELS: Schema = {
    "type": "object",
    "maxProperties": MAX_LABELS,
    "propertyNames": {"pattern": "^[A-Za-z0-9._/-]{1,63}$"},
    "additionalProperties": _printable(200, 0),
}
NODE = record(
    {
        "nodeKey": {"type": "string", "pattern": "^[0-9A-Fa-f]{32,128}$"},
        "name": _printable(100),
        "version": _printable(40),
        "platform": _printable(100),
        "machineId": _printable(128),
        "cpu": number(1, 65_536),
        "memoryMiB": number(1, 2**40),
        "runtimes": listed(one_of(*RUNTIMES), shortest=1, different=True),
    },
    {
        "gpu": nullable(_GPU),
        "imageDigest": nullable(_DIGEST),
        "fingerprint": nullable(_DIGEST),
        "networkGroup": nullable(_printable(100)),
        "allowClusterNetwork": FLAG,
        "labels": _LABELS,
        "data": listed({"type": "string", "pattern": "^[A-Z][A-Z0-9_]{0,63}$"}, longest=MAX_DATA, different=True),
        "isolation": _PROFILE,
    },
)
REGISTERED = record(
    {
        "id": identifier("node"),
        "name": TEXT,
        "token": nullable({"type": "string", "pattern": "^mgn_[A-Za-z0-9_-]{43,}$"}),
        "tokenId": identifier("tok"),
        "ttlSeconds": COUNT,
    }
)
_LEASE = record(
    {"jobId": identifier("job"), "attempt": number(1, MAX_ATTEMPT), "rank": COUNT, "state": TEXT}
)  # fmt: skip
NODES = record(
    {
        "nodes": listed(
            record(
                {
                    "id": identifier("node"),
                    "name": TEXT,
                    "state": one_of("idle", "busy", "paused", "away"),
                    "pauseReason": nullable(TEXT),
                    "platform": TEXT,
                    "cpu": COUNT,
                    "memoryMiB": COUNT,
                    "gpu": nullable(_GPU),
                    "runtimes": listed(TEXT),
                    "networkGroup": nullable(TEXT),
                    "allowClusterNetwork": FLAG,
                    "labels": _LABELS,
                    "data": listed(TEXT),
                    "fingerprint": nullable(TEXT),
                    "imageDigest": nullable(TEXT),
                    "isolation": _PROFILE,
                    "registeredAt": TIME,
                    "lastSeenAt": TIME,
                    "lease": nullable(_LEASE),
                }
            )
        )
    }
)
PAUSE = record({"paused": FLAG}, {"reason": nullable(_printable(500))})
CLAIM = record({"claimId": {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,64}$"}}, {"wait": WAIT})
GRANT = record(
    {
        "leaseId": identifier("lease"),
        "attempt": number(1, MAX_ATTEMPT),
        "attemptId": identifier("att"),
        "jobId": identifier("job"),
        "rank": COUNT,
        "ranks": COUNT,
        "token": {"type": "string", "pattern": "^mgl_[A-Za-z0-9_-]{43,}$"},
        "ttlSeconds": COUNT,
        "readyWithinSeconds": COUNT,
        "logCapBytes": COUNT,
        "spec": {"type": "object"},
        "inputs": listed(FILE_ENTRY),
        "inputsDigest": SHA256,
        "requestId": nullable(TEXT),
    }
)
NOTHING = Answer(None, headers=_CROWDED, says="Nothing within the wait.")
_HELD = {"leaseId": identifier("lease"), "attempt": number(1, MAX_ATTEMPT)}
READY = record({**_HELD, "inputsDigest": SHA256}, {"wait": WAIT, "isolation": _PROFILE, "warnings": listed(TEXT)})
_MEASURE = nullable({"type": "number", "minimum": 0, "maximum": 10**15})
_USAGE = nullable(record({}, dict.fromkeys(USAGE, _MEASURE)))
HEARTBEAT = record(_HELD, {"usage": _USAGE, "wait": WAIT, "started": FLAG})
_STOP = record({"reason": TEXT, "graceSeconds": COUNT})
ORDERS = Answer(
    record({"ttlSeconds": COUNT, "start": FLAG, "stop": nullable(_STOP)}), headers=_CROWDED, says="What to do now."
)
ACKED = record({"acked": COUNT})
REPORT = record(
    {**_HELD, "outcome": one_of(*(str(outcome) for outcome in Outcome)), "logBytes": number(0, LOG_CAP_BYTES)},
    {
        "reason": nullable(record({"code": one_of(*sorted(REASONS)), "message": TEXT})),
        "exitCode": nullable(number(-(2**31), 2**31 - 1)),
        "signal": nullable(number(1, 255)),
        "results": listed(FILE_ENTRY, longest=MAX_RESULTS),
        "usage": _USAGE,
        "warnings": listed(TEXT),
    },
)
REPORTED = record({"state": one_of(*(str(state) for state in State))})
EXPLANATION = record(
    {
        "jobId": identifier("job"),
        "state": TEXT,
        "waiting": FLAG,
        "summary": TEXT,
        "nodes": listed(
            record(
                {
                    "nodeId": identifier("node"),
                    "name": TEXT,
                    "problems": listed(record({"code": TEXT, "message": TEXT})),
                }
            )
        ),
        "known": listed(TEXT),
    }
)
