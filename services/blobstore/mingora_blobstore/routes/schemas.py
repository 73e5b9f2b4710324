"""What blobstore takes and answers, as JSON Schema, for its OpenAPI document."""

from __future__ import annotations

from mingora_blobstore.domain.objects import COMPLETE, CORRUPT, EMPTY_SHA256, KINDS, OPEN
from mingora_common.openapi import OCTETS, Answer
from mingora_common.schemas import (
    BYTES,
    COUNT,
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
)

MAX_BATCH = 1000
MAX_PAGE = 1000
STATE = one_of(OPEN, COMPLETE, CORRUPT)

_EMPTY = record({"size": {"const": 0}, "sha256": {"const": EMPTY_SHA256}, "kind": one_of(*KINDS)})
_FILLED = record({"size": number(1, 2**53), "sha256": SHA256, "kind": one_of(*KINDS)})
WANTED: Schema = {"anyOf": [_EMPTY, _FILLED]}
OBJECT = record(
    {
        "id": identifier("obj"),
        "kind": one_of(*KINDS),
        "size": COUNT,
        "sha256": SHA256,
        "state": STATE,
        "partSize": COUNT,
        "parts": COUNT,
        "present": listed(COUNT),
        "createdAt": TIME,
        "completedAt": nullable(TIME),
        "pinned": FLAG,
    }
)
# Each entry is opened by itself: one that can't be is that entry's error.
BATCH = record({"objects": listed({}, shortest=1, longest=MAX_BATCH)})
BATCH_OPENED = record({"objects": listed({"anyOf": [OBJECT, {"$ref": "#/components/schemas/Error"}]})})
PAGE = record(
    {
        "objects": listed(OBJECT),
        "next": nullable(TEXT),
        "usage": record({"bytes": COUNT, "files": COUNT, "maxBytes": COUNT, "maxFiles": COUNT}),
    }
)
CURSOR: Schema = {"type": "string", "pattern": "^[0-9]{1,15}[.]obj_[A-Za-z0-9_-]{8,64}$"}
INDEX = number(0, 10**9 - 1)
PART = record({"index": COUNT, "size": COUNT, "sha256": SHA256, "state": STATE})
_TAG: Schema = {"type": "string", "pattern": '^"[0-9a-f]{64}"$'}
_OF_CONTENT = {"ETag": _TAG, "Accept-Ranges": one_of("bytes"), "X-Content-SHA256": SHA256}
WHOLE = Answer(BYTES, OCTETS, _OF_CONTENT, "The whole content.")
RANGE = Answer(BYTES, OCTETS, {**_OF_CONTENT, "Content-Range": TEXT}, "The range that was asked for.")
UNCHANGED = Answer(None, OCTETS, _OF_CONTENT, "The caller has it.")
OWNER: Schema = {"type": "string", "pattern": "^(job|att)_[A-Za-z0-9_-]{8,64}$"}
PINS = record(
    {
        "owner": OWNER,
        "accountId": identifier("acc"),
        "objects": listed(record({"id": identifier("obj"), "sha256": SHA256, "size": COUNT})),
    }
)
PINNED = record({"pinned": COUNT})
