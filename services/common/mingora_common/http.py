"""The common frame of a service's Flask app: errors as JSON, request ids, tokens, JSON bodies, bounded draining."""

from __future__ import annotations

import functools
import hmac
import itertools
import json
import math
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import structlog
from flask import Flask, Response, current_app, g, jsonify, request
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from mingora_common import errors, faults, logs, openapi
from mingora_common.auth import USER, Principal, TokenReader
from mingora_common.config import FrameConfig
from mingora_common.db.reach import is_away
from mingora_common.drain import DrainBody
from mingora_common.errors import INVALID_REQUEST, ServiceError
from mingora_common.health import metrics_blueprint
from mingora_common.metrics import OTHER, ROUTE, Measured, Metrics
from mingora_common.proxies import TrustedProxies
from mingora_common.wake import MAX_WAIT_SECONDS, Waiters, wait_for

MAX_JSON_BYTES = 4 * 1024 * 1024
API_PREFIX = "/api/research/v1"

# What is logged of a path.
MAX_PATH_CHARACTERS = 300

_log = structlog.get_logger()
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def make_app(
    service: str, tokens: TokenReader, config: FrameConfig | None = None, metrics: Metrics | None = None
) -> Flask:
    """A Flask app of ``service`` with the error handler, request ids, the token reader and ``/metrics`` in place.

    ``metrics`` are the process's, where it serves more than this app.
    """
    config, metrics = config or FrameConfig(), metrics or Metrics()
    app = Flask(f"mingora_{service}", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # nothing answers without being asked who is asking
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.extensions["mingora_tokens"] = tokens
    app.before_request(_begin)
    app.after_request(_finish)
    app.register_error_handler(Exception, _answer_error)
    app.register_blueprint(metrics_blueprint(metrics, config.metrics_key))
    app.register_blueprint(openapi.blueprint(service), url_prefix=API_PREFIX)
    measured = Measured(DrainBody(app.wsgi_app), service, metrics)
    app.wsgi_app = TrustedProxies(measured, config.trusted_proxies)  # type: ignore[method-assign]
    return app


def principal() -> Principal:
    """The caller of this request; only after :func:`needs`."""
    return cast(Principal, g.principal)


def needs(scope: str, *kinds: str) -> Callable[[F], F]:
    """Decorate a view: a valid token of one of ``kinds`` (a user's by default) with ``scope`` is needed."""

    def decorate(view: F) -> F:
        @functools.wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            g.principal = _verified()
            g.principal.require(scope, kinds or (USER,))
            structlog.contextvars.bind_contextvars(account=g.principal.account_id)
            return view(*args, **kwargs)

        guarded.mingora_scope = scope  # type: ignore[attr-defined]
        guarded.mingora_kinds = kinds or (USER,)  # type: ignore[attr-defined]
        return cast(F, guarded)

    return decorate


def wait_as_caller(look: Callable[[], T | None], waiters: Waiters, topics: Iterable[str], seconds: float) -> T | None:
    """:func:`wait_for`, for as long as the caller's token works; raises ``invalid_token`` once it doesn't."""
    looks = itertools.count()

    def look_as_caller() -> T | None:
        found = look()
        if next(looks):  # the first comes right after the token was verified
            _verified()
        return found

    return wait_for(look_as_caller, waiters, topics, seconds)


def check_internal_key(expected: str) -> None:
    """Refuse a call to ``/internal`` without the shared key (404: outside, there is nothing there)."""
    if not hmac.compare_digest(request.headers.get("X-Internal-Key", "").encode(), expected.encode()):
        raise ServiceError(errors.NOT_FOUND)


def content_length(maximum: int) -> int:
    """The request's Content-Length; 411 without one, 413 over ``maximum`` bytes."""
    length = request.content_length
    if length is None:
        raise ServiceError(errors.LENGTH_REQUIRED)
    if length > maximum:
        raise ServiceError(errors.BODY_TOO_LARGE, allowed=maximum)
    return length


def json_body(fields: Iterable[str], *, empty_ok: bool = False, maximum: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The request's JSON object, of which only ``fields`` are known; anything else is refused by name.

    Args:
        maximum: bytes. What anybody may send has to be small: each body is in memory while it arrives.
    """
    length = content_length(maximum) if request.content_length is not None or not empty_ok else 0
    data = request.stream.read(length)
    if len(data) < length:
        raise ServiceError(INVALID_REQUEST, "The body ended before its Content-Length.")
    if not data and empty_ok:
        return {}
    try:
        body = json.loads(data, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError):
        raise ServiceError(INVALID_REQUEST, "The body isn't a valid JSON object.") from None
    if not isinstance(body, dict):
        raise ServiceError(INVALID_REQUEST, "The body must be a JSON object.")
    unknown = sorted(set(body) - set(fields))
    if unknown:
        raise ServiceError(INVALID_REQUEST, f"Unknown field: {unknown[0][:100]}", field=unknown[0][:100])
    return body


def wait_seconds(value: object) -> float:
    """The ``wait`` of a waiting read, from a query or a body: 0 when absent, never more than 15."""
    if value is None or value == "":
        return 0.0
    try:
        seconds = float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if isinstance(value, bool) or not seconds >= 0:
        raise ServiceError(INVALID_REQUEST, "wait must be a number of seconds, 0 or more.", field="wait")
    return min(seconds, MAX_WAIT_SECONDS)


def query_int(name: str, default: int, *, minimum: int = 0, maximum: int = 2**53) -> int:
    """A whole number from the query string, within bounds."""
    text = request.args.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,16}", text) or not minimum <= int(text) <= maximum:
        raise ServiceError(INVALID_REQUEST, f"{name} must be a whole number from {minimum} to {maximum}.", field=name)
    return int(text)


def no_content() -> Response:
    """204."""
    return Response(status=204)


def _verified() -> Principal:
    tokens: TokenReader = current_app.extensions["mingora_tokens"]
    return tokens.verify(request.headers.get("Authorization"))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # 1e400
        raise ValueError(f"{text[:20]} is out of range")
    return number


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is named twice")
    return members


def _begin() -> None:
    # A thread of a server's pool knows nothing of what the main thread bound.
    service = current_app.name.removeprefix("mingora_")
    g.request_id = logs.begin(request.headers.get("X-Request-Id"), service=service)
    g.started = time.monotonic()
    request.environ[ROUTE] = request.url_rule.rule if request.url_rule is not None else OTHER
    faults.entered(f"{service}.{request.endpoint}")


def _finish(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    _log.info(
        "request",
        method=request.method,
        path=request.path[:MAX_PATH_CHARACTERS],
        status=response.status_code,
        seconds=round(time.monotonic() - g.started, 4),
    )
    faults.point("answered")
    return response


def _answer_error(error: Exception) -> Response:
    if not isinstance(error, ServiceError):
        error = _as_service_error(error)
    response = jsonify(error.body())
    response.status_code = error.kind.status
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.kind is errors.INVALID_TOKEN:
        response.headers["WWW-Authenticate"] = 'Bearer realm="mingora"'
    return response


def _as_service_error(error: Exception) -> ServiceError:
    if isinstance(error, HTTPException):
        by_status = {404: errors.NOT_FOUND, 405: errors.METHOD_NOT_ALLOWED, 413: errors.BODY_TOO_LARGE}
        code = error.code or 500
        if code < 500:
            return ServiceError(by_status.get(code, INVALID_REQUEST))
    if isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and is_away(error)):
        _log.error("database_unavailable", exc_info=error)
        return errors.storage_unavailable(error)
    _log.error("internal_error", exc_info=error)
    return ServiceError(errors.INTERNAL)
