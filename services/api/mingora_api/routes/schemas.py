"""What api takes and answers, as JSON Schema, for its OpenAPI document."""

from __future__ import annotations

from mingora_api.domain.inputs import MAX_INPUTS
from mingora_api.domain.jobs import STATES
from mingora_api.domain.names import MAX_NAME_CHARACTERS, MAX_PASSWORD_BYTES
from mingora_api.domain.spec import SCHEMA
from mingora_common.auth import NODE, SCOPES, USER
from mingora_common.openapi import OCTETS, Answer
from mingora_common.schemas import (
    BYTES,
    COUNT,
    FILE_ENTRY,
    FLAG,
    SHA256,
    TEXT,
    TIME,
    Schema,
    identifier,
    listed,
    nullable,
    number,
    one_of,
    record,
    text,
)

_STORABLE = r"^[^\x00]*$"
_SCOPES = listed(one_of(*SCOPES))
_LATER: Schema = {"type": "string", "pattern": "^[0-9]+$"}
STATE = one_of(*STATES)
KEY = text(200, shortest=1, pattern=r"^[\x20-\x7e]+$")
# The header's value: blanks round it don't arrive.
KEY_HEADER = text(200, shortest=1, pattern=r"^[\x21-\x7e]+( [\x21-\x7e]+)*$")
MAX_ROW = 2**31 - 1
# A waiting read that found no place to wait says when to ask again.
CROWDED = {"Retry-After": _LATER}

SIGN_IN = record(
    {
        "identifier": text(MAX_NAME_CHARACTERS, pattern=_STORABLE),
        "password": text(MAX_PASSWORD_BYTES, pattern=_STORABLE),
    },
    {"name": text(MAX_NAME_CHARACTERS, pattern=_STORABLE)},
)
SIGNED_IN = record(
    {
        "token": {"type": "string", "pattern": "^mgu_[A-Za-z0-9_-]{43,}$"},
        "id": identifier("tok"),
        "name": TEXT,
        "scopes": _SCOPES,
        "createdAt": TIME,
        "expiresAt": TIME,
        "ttlSeconds": COUNT,
        "account": record({"id": identifier("acc"), "name": TEXT, "tenant": TEXT}),
    }
)
TOKENS = record(
    {
        "tokens": listed(
            record(
                {
                    "id": identifier("tok"),
                    "kind": one_of(USER, NODE),
                    "name": TEXT,
                    "scopes": _SCOPES,
                    "createdAt": TIME,
                    "lastUsedAt": nullable(TIME),
                    "expiresAt": TIME,
                    "current": FLAG,
                },
                {"nodeId": identifier("node")},
            )
        )
    }
)
TOKEN_ID: Schema = {"type": "string", "pattern": "^(current|tok_[A-Za-z0-9_-]{8,64})$"}
ACCOUNT = record(
    {
        "id": identifier("acc"),
        "name": TEXT,
        "tenant": TEXT,
        "token": record({"id": identifier("tok"), "kind": one_of(USER), "scopes": _SCOPES, "expiresAt": TIME}),
    }
)
POLICY = record(
    {
        "apiVersion": COUNT,
        "server": TEXT,
        "limits": record(
            dict.fromkeys(
                (
                    "maxFileBytes", "maxBytes", "maxFiles", "maxJobs", "maxNodes", "maxLogBytes", "maxInputs",
                    "maxPathBytes",
                ),
                COUNT,
            )
        ),
        "partSizeBytes": COUNT,
        "intervals": {"type": "object", "additionalProperties": COUNT},
        "features": listed(TEXT),
        "fees": record({"model": TEXT, "currency": TEXT, "usageVerified": FLAG}),
        "jobSchema": {"type": "object"},
    }
)  # fmt: skip

_JOB_SPEC: Schema = {name: value for name, value in SCHEMA.items() if name != "$schema"}
SUBMISSION = record({"spec": _JOB_SPEC, "inputs": listed(FILE_ENTRY, longest=MAX_INPUTS)})
_RANK = {
    "rank": COUNT,
    "nodeId": identifier("node"),
    "nodeName": TEXT,
    "state": TEXT,
    "exitCode": nullable(number(-(2**31), MAX_ROW)),
    "logBytes": COUNT,
}
_SUMMARY = {
    "id": identifier("job"),
    "name": TEXT,
    "key": KEY,
    "state": STATE,
    "reason": nullable(record({"code": TEXT, "message": TEXT})),
    "cancelRequested": FLAG,
    "priority": number(-100, 100),
    "attempt": nullable(number(1, MAX_ROW)),
    "createdAt": TIME,
    "startedAt": nullable(TIME),
    "finishedAt": nullable(TIME),
    "exitCode": nullable(number(-(2**31), MAX_ROW)),
    "ranks": listed(record(_RANK)),
    "usage": nullable(
        record(
            {"verified": FLAG},
            {"cpuSeconds": {"type": "number", "minimum": 0}, "maxMemoryMiB": {"type": "number", "minimum": 0}},
        )
    ),
}
_RESULT = record({**FILE_ENTRY["properties"], "rank": COUNT})
JOB = record(
    {
        **_SUMMARY,
        "ranks": listed(record({**_RANK, "isolation": {"type": ["object", "null"]}})),
        "spec": {"type": "object"},
        "inputs": listed(FILE_ENTRY),
        "results": listed(_RESULT),
    }
)
JOBS = record({"jobs": listed(record(_SUMMARY)), "next": nullable(TEXT)})
CURSOR = text(200, shortest=1, pattern="^[A-Za-z0-9_-]+$")
EVENTS = record(
    {
        "events": listed(record({"seq": COUNT, "at": TIME, "type": TEXT, "data": {"type": "object"}})),
        "last": COUNT,
        "final": FLAG,
    }
)
LOG = Answer(
    BYTES,
    OCTETS,
    {
        **dict.fromkeys(("X-Log-Attempt", "X-Log-Offset", "X-Log-Next-Offset", "X-Log-Size"), _LATER),
        **dict.fromkeys(("X-Log-Complete", "X-Log-Truncated"), one_of("true", "false")),
        **CROWDED,
    },
    "Bytes of the log from the offset on.",
)
DIGEST = SHA256
