"""The error catalogue: one code, one status, one meaning (docs/protocol.md lists them for clients).

Domain code raises :class:`ServiceError` by a catalogue entry; ``http.py`` renders it. What isn't a ServiceError is a
fault of ours: the client learns ``internal`` and a request id, the log learns the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An entry of the catalogue: what a client decides by."""

    code: str
    status: int
    message: str
    retryable: bool = False


INVALID_REQUEST = ErrorKind("invalid_request", 400, "The request is malformed.")
INVALID_TOKEN = ErrorKind("invalid_token", 401, "The token is missing, unknown, expired or revoked. Log in again.")
BAD_CREDENTIALS = ErrorKind("bad_credentials", 401, "The name or the password is wrong.")
INSUFFICIENT_SCOPE = ErrorKind("insufficient_scope", 403, "The token lacks the scope for this call.")
QUOTA_EXCEEDED = ErrorKind(
    "quota_exceeded", 403, "The account's limit is reached. Delete finished jobs or ask the operator to raise it."
)
NOT_FOUND = ErrorKind("not_found", 404, "There is no such thing, or it isn't yours.")
METHOD_NOT_ALLOWED = ErrorKind("method_not_allowed", 405, "This path doesn't take that method.")
KEY_CONFLICT = ErrorKind("key_conflict", 409, "This submission key already names a job of other content.")
PART_CONFLICT = ErrorKind("part_conflict", 409, "This part is stored already with other bytes.")
OBJECT_FROZEN = ErrorKind("object_frozen", 409, "The object is complete and can't be changed.")
OBJECT_INCOMPLETE = ErrorKind("object_incomplete", 409, "The object still lacks parts.")
OBJECT_IN_USE = ErrorKind("object_in_use", 409, "A job holds this object. Delete the job first.")
OBJECT_CORRUPT = ErrorKind("object_corrupt", 409, "The stored content doesn't match its digest. Upload it again.")
INPUT_MISSING = ErrorKind("input_missing", 409, "Input objects are missing or incomplete. Upload them first.")
JOB_NOT_FINISHED = ErrorKind("job_not_finished", 409, "The job is still going. Cancel it first.")
LEASE_LOST = ErrorKind("lease_lost", 409, "This lease is over: nothing was changed.")
NODE_BUSY = ErrorKind("node_busy", 409, "This worker already holds a lease.")
LOG_GAP = ErrorKind("log_gap", 409, "These log bytes lie past what has been received.")
LOG_INCOMPLETE = ErrorKind("log_incomplete", 409, "The log hasn't been received to its end.")
LENGTH_REQUIRED = ErrorKind("length_required", 411, "A Content-Length header is needed.")
BODY_TOO_LARGE = ErrorKind("body_too_large", 413, "The request's body is too large.")
FILE_TOO_LARGE = ErrorKind("file_too_large", 413, "The file is over the account's limit for one file.")
RANGE_NOT_SATISFIABLE = ErrorKind("range_not_satisfiable", 416, "The content has no such range.")
DIGEST_MISMATCH = ErrorKind("digest_mismatch", 422, "The bytes don't match the stated SHA-256.")
INVALID_JOB = ErrorKind("invalid_job", 422, "The job's description isn't valid.")
RATE_LIMITED = ErrorKind("rate_limited", 429, "Too many requests. Try again later.", retryable=True)
INTERNAL = ErrorKind("internal", 500, "Something went wrong on the server.")
UNAVAILABLE = ErrorKind("unavailable", 503, "A part of the platform can't be reached just now.", retryable=True)

CATALOGUE: tuple[ErrorKind, ...] = tuple(value for value in list(globals().values()) if isinstance(value, ErrorKind))


class ServiceError(Exception):
    """A refusal that the client is told about.

    ``fields`` are further JSON members of the error (camelCase); ``retry_after`` is in seconds.
    """

    def __init__(
        self, kind: ErrorKind, message: str | None = None, *, retry_after: int | None = None, **fields: Any
    ) -> None:
        super().__init__(message or kind.message)
        self.kind = kind
        self.message = message or kind.message
        self.retry_after = retry_after
        self.fields = fields

    def body(self) -> dict[str, Any]:
        """The JSON answer, ``{"error": {…}}``."""
        return {
            "error": {
                "code": self.kind.code,
                "message": self.message,
                "retryable": self.kind.retryable,
                **self.fields,
            }
        }


def storage_unavailable(error: BaseException) -> ServiceError:
    """503 for storage that can't be used now. A full disk is named (``reason``): waiting alone won't mend it."""
    text = str(error)
    if "disk is full" in text or "No space left on device" in text:  # as SQLite says it, and the system
        message = "The platform's disk is full. Its operator has to make room."
        return ServiceError(UNAVAILABLE, message, retry_after=2, reason="disk_full")
    return ServiceError(UNAVAILABLE, retry_after=2)
