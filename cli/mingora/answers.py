"""Reads HTTP answers: bodies in bounded steps, JSON, and error answers as errors of the tree."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mingora.errors import ApiError, LostAnswer, RateLimited
from mingora.i18n import _

if TYPE_CHECKING:
    import http.client

CHUNK = 1024 * 1024


def headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def steps(response: http.client.HTTPResponse) -> Iterator[bytes]:
    import http.client

    left = response.length
    while True:
        try:
            block = response.read1(CHUNK) if left is None else response.read(min(CHUNK, left))
        except (http.client.HTTPException, OSError) as error:
            raise LostAnswer(_("The answer broke off: {reason}").format(reason=why(error))) from error
        if left is not None:
            left -= len(block)
            if not block and left:
                raise LostAnswer(_("The answer broke off: {reason}").format(reason=_("connection closed")))
        if not block:
            response.close()
            return
        yield block
        if left == 0:
            response.close()
            return


def read_all(response: http.client.HTTPResponse, limit: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    for block in steps(response):
        size += len(block)
        if size > limit:
            raise LostAnswer(_("The server's answer is too long."))
        blocks.append(block)
    return b"".join(blocks)


def parsed(status: int, body: bytes) -> Any:
    """The JSON of an answer; None for 204 alone. What isn't JSON doesn't come from this API: the answer is lost."""
    try:
        return None if status == 204 else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise LostAnswer(_("The server's answer is not JSON.")) from error


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of an answer; a body that isn't this API's (a proxy's page) gets the code `http_<status>`."""
    fields: dict[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        fields = dict(json.loads(body)["error"])
    code = str(fields.pop("code", f"http_{status}"))
    message = str(fields.pop("message", "")) or _("The server answered with status {status}.").format(status=status)
    retryable = fields.pop("retryable", False) is True
    kind = RateLimited if status == 429 else ApiError
    return kind(
        code,
        status,
        message,
        retryable=retryable,
        fields=fields,
        retry_after=_retry_after(headers),
        request_id=headers.get("x-request-id"),
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header. A date (RFC 9110, 10.2.3) is held against the server's own clock: ours may be
    a day off."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        then, now = _date(value), _date(headers.get("date", ""))
        return None if then is None else max(0.0, then - (time.time() if now is None else now))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(value: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def why(error: BaseException) -> str:
    """A short reason without Python's class names where the system has words for it."""
    if isinstance(error, TimeoutError):
        return _("timed out")
    verify = getattr(error, "verify_message", None)
    if verify:
        return str(verify)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
