"""``POST /soru``, the protocol's optional extension: a volunteer's question, stored without an address."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from ipaddress import IPv6Address, ip_network
from typing import Any

from flask import Blueprint, Response, request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from mingora_common.proxies import parsed
from mingora_coordinator.domain.settings import MAX_NAME
from mingora_coordinator.routes.wire import UNAUTHORIZED, WireError, answer
from mingora_coordinator.store.questions import Questions

MAX_BODY = 64 * 1024
MAX_QUESTION = 2000
MAX_VERSION = 60
MAX_CONTEXT = 8000
# Of one address, in ten minutes.
LIMIT = RateLimitItemPerMinute(5, 10)
WINDOW_SECONDS = LIMIT.get_expiry()
# A provider gives a customer all addresses of such a network.
_CUSTOMER_BITS = 64


def blueprint(questions: Questions, may_speak_as: Callable[[str], bool]) -> Blueprint:
    """The route. ``may_speak_as`` tells whether the caller's key is good for a nickname."""
    routes = Blueprint("soru", __name__)
    limiter = MovingWindowRateLimiter(MemoryStorage())
    # What is counted, in memory alone, is a digest that nobody can turn back into an address.
    salt = secrets.token_bytes(16)

    @routes.post("/soru")
    def soru() -> Response:
        body = _body()
        question = _text(body, "soru", MAX_BODY).strip()
        if not 1 <= len(question) <= MAX_QUESTION:
            raise WireError(400, f"soru 1-{MAX_QUESTION} karakter olmalı")
        more = (_text(body, "isci", MAX_NAME), _text(body, "surum", MAX_VERSION), _text(body, "baglam", MAX_CONTEXT))
        if more[0] and not may_speak_as(more[0]):
            raise WireError(401, UNAUTHORIZED)
        if not limiter.hit(LIMIT, hashlib.sha256(salt + _sender().encode()).hexdigest()):
            text = "çok fazla soru: 10 dakikada en çok 5"
            raise WireError(429, text, {"Retry-After": str(WINDOW_SECONDS)})
        try:
            number = questions.add(question, *more)
        except OSError as error:
            raise WireError(503, "soru saklanamadı: koordinatörün diski dolu ya da bozuk") from error
        return answer({"tamam": True, "no": number})

    return routes


def _body() -> dict[str, Any]:
    if request.content_length is not None and request.content_length > MAX_BODY:
        raise WireError(413, "gövde çok büyük")
    data = request.environ["wsgi.input"].read(MAX_BODY + 1)
    if len(data) > MAX_BODY:
        raise WireError(413, "gövde çok büyük")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise WireError(400, "gövde bir JSON nesnesi olmalı")
    return body


def _text(body: dict[str, Any], name: str, most: int) -> str:
    """A member that is a text of bounded length, or absent."""
    value = "" if body.get(name) is None else body[name]
    if not isinstance(value, str) or len(value) > most:
        raise WireError(400, f"{name} en çok {most} karakterlik bir metin olmalı")
    return value


def _sender() -> str:
    """The client's address; of IPv6 the network that is a customer's own."""
    address = parsed(request.remote_addr or "")
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _CUSTOMER_BITS), strict=False))
    return str(address)
