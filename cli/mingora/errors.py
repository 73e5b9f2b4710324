"""What can go wrong, as one tree, and the one rule for what is sent again.

MingoraError
├── UsageProblem            the person's input can't be used
├── NotLoggedIn             no token, or none that fits
├── ProjectError            the folder or its job.json can't be submitted
│   └── FileChanged         a file changed while it was being sent
├── IntegrityError          received bytes don't match their SHA-256
├── ResultConflict          a download would overwrite or leave its folder
├── JobUnfinished           the job isn't over yet
├── WaitTimeout             the job didn't finish in the time given
├── OutcomeUnknown          a write may or may not have happened
├── TransportError
│   ├── NotSent             the server never saw the request
│   │   ├── InsecureServer  plain HTTP beyond loopback; nothing was sent
│   │   └── TlsError        the server's certificate isn't trusted
│   └── LostAnswer          the request went out, no whole answer came back
└── ApiError                the server answered with an error code
    └── RateLimited         429
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_ATTEMPTS = 5
MAX_RATE_ATTEMPTS = 20
LONGEST_RETRY_AFTER = 60.0
_UNAVAILABLE = frozenset({502, 503, 504})
_AUTH_CODES = frozenset({"invalid_token", "bad_credentials", "insufficient_scope"})


class MingoraError(Exception):
    """The root of the tree. `exit_code` is what the command line ends with (CLI-12)."""

    exit_code = 1
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint


class UsageProblem(MingoraError):
    exit_code = 2


class NotLoggedIn(MingoraError):
    exit_code = 3


class ProjectError(MingoraError):
    """`problems`: every finding, as `(path, message)`."""

    def __init__(self, message: str, *, hint: str | None = None, problems: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or []


class FileChanged(ProjectError):
    """The named file isn't what was hashed any more."""


class IntegrityError(MingoraError):
    """Bytes received don't have the SHA-256 the platform states."""


class ResultConflict(MingoraError):
    """Writing the file would overwrite another or leave the destination."""


class JobUnfinished(MingoraError):
    exit_code = 101


class WaitTimeout(MingoraError):
    exit_code = 124


class OutcomeUnknown(MingoraError):
    """A write that isn't safe to repeat got no clear answer; `cause` is what came instead."""

    exit_code = 7

    def __init__(self, message: str, cause: MingoraError, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.cause = cause


class TransportError(MingoraError):
    """No whole answer."""


class NotSent(TransportError):
    """The server can't have seen the request."""


class InsecureServer(NotSent):
    """AUTH-5: plain HTTP to an address that isn't loopback; nothing was sent or resolved."""

    exit_code = 2


class TlsError(NotSent):
    """The TLS handshake failed; trying again would fail likewise."""


class LostAnswer(TransportError):
    """The request may have been carried out."""


class ApiError(MingoraError):
    """An error answer. `fields` is the error object without code, message and retryable."""

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        *,
        retryable: bool = False,
        fields: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retryable = retryable
        self.fields = dict(fields or {})
        self.retry_after = retry_after
        self.request_id = request_id

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        if self.code in _AUTH_CODES or self.status == 401:
            return 3
        if self.code == "not_found":
            return 4
        if self.code == "key_conflict":
            return 5
        if self.code == "job_not_finished":
            return JobUnfinished.exit_code
        if self.code in {"quota_exceeded", "file_too_large"} or self.status == 429:
            return 6
        return 1


class RateLimited(ApiError):
    """429; `retry_after` is None when the server names no time."""


def outcome_unknown(error: MingoraError) -> bool:
    """Whether a write that ended in `error` may have been carried out all the same."""
    if isinstance(error, ApiError):
        return error.status >= 500
    return isinstance(error, LostAnswer)


def retry_delay(error: MingoraError, *, attempt: int, idempotent: bool) -> float | None:
    """The one rule for sending again (CLI-10).

    `attempt` counts from 1: how often the request was tried. Returns the seconds to wait before the next try, or
    None when the error is to be reported. A write that isn't idempotent is sent again only when the server can't
    have carried it out: it wasn't reached, or refused by 429.
    """
    if isinstance(error, RateLimited):
        if error.retry_after is None:
            return _backoff(attempt) if attempt < MAX_ATTEMPTS else None
        if error.retry_after > LONGEST_RETRY_AFTER or attempt >= MAX_RATE_ATTEMPTS:
            return None
        return max(error.retry_after, 0.05)
    if attempt >= MAX_ATTEMPTS or isinstance(error, InsecureServer | TlsError):
        return None
    if isinstance(error, NotSent):
        return _backoff(attempt)
    if not idempotent:
        return None
    if isinstance(error, LostAnswer):
        return _backoff(attempt)
    if isinstance(error, ApiError) and error.status in _UNAVAILABLE:
        wait = _backoff(attempt) if error.retry_after is None else error.retry_after
        return wait if wait <= LONGEST_RETRY_AFTER else None
    return None


def _backoff(attempt: int) -> float:
    import random

    return min(8.0, 0.2 * 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, no secret
