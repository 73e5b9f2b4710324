"""The one place where the coordinator is put together."""

from __future__ import annotations

import base64
import binascii
import time

import structlog
from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from mingora_common import logs
from mingora_common.clock import Clock
from mingora_common.drain import DrainBody
from mingora_common.proxies import Networks, TrustedProxies
from mingora_coordinator.routes import agirlik, bilgi, gorev, metrics, page, sonuc, soru
from mingora_coordinator.routes.slots import Slots
from mingora_coordinator.routes.wire import KEY_HEADER, STATUSES, UNAUTHORIZED, WireError, refusal
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.store.questions import Questions
from mingora_coordinator.training.training import Training

MAX_PATH_CHARACTERS = 300
# Of a refused body, for as long as it may take (drain.py): one of another, larger model ends with its answer.
DRAIN_BYTES = 1024 * 1024 * 1024
# Discovery, and what tells nothing but whether the process works.
OPEN = frozenset({"bilgi.bilgi", "metrics.healthz", "metrics.readyz"})
# What a browser or Prometheus asks for, which can't send the protocol's header.
BASIC = frozenset({"page.page", "page.asset", "page.state", "metrics.metrics"})

_log = structlog.get_logger()


def create_app(training: Training, keys: Keys, clock: Clock, *, transfers: int, trusted: Networks = ()) -> Flask:
    """The WSGI app over a running training.

    Args:
        transfers: adapters that are sent and received at a time.
        trusted: proxies whose word on a client's address counts.
    """
    slots = Slots(transfers)
    app = Flask("mingora_coordinator", static_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    registry = CollectorRegistry()
    requests = metrics.Requests(registry)

    @app.before_request
    def begin() -> None:
        g.request_id = logs.begin(request.headers.get("X-Request-Id"), service="coordinator")
        g.started = time.monotonic()
        if request.endpoint not in OPEN and not keys.opens(_key(), request.args.get("isci")):
            challenge = {"WWW-Authenticate": 'Basic realm="mingora"'} if request.endpoint in BASIC else {}
            raise WireError(401, UNAUTHORIZED, challenge)

    @app.after_request
    def finish(response: Response) -> Response:
        seconds = time.monotonic() - g.started
        response.headers["X-Request-Id"] = g.request_id
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        route = request.url_rule.rule if request.url_rule is not None else "other"
        requests.answered(route, request.method if request.url_rule else "other", response.status_code, seconds)
        # Neither the address nor the query, which names the volunteer.
        path = request.path[:MAX_PATH_CHARACTERS]
        _log.info("request", method=request.method, path=path, status=response.status_code, seconds=round(seconds, 4))
        return response

    app.register_error_handler(Exception, _answer_error)
    for routes in (
        bilgi.blueprint(training, keys),
        gorev.blueprint(training),
        agirlik.blueprint(training, slots),
        sonuc.blueprint(training, slots),
        soru.blueprint(Questions(training.folder, clock), lambda name: keys.opens(_key(), name)),
        page.blueprint(training),
        metrics.blueprint(training, keys, registry),
    ):
        app.register_blueprint(routes)
    # Who is refused while sending a whole result reads the answer.
    most = max(DRAIN_BYTES, 2 * training.layout.body_cap)
    app.wsgi_app = TrustedProxies(DrainBody(app.wsgi_app, most), trusted)  # type: ignore[method-assign]
    return app


def _key() -> str | None:
    """What the client shows: the protocol's header, or the password or token of what can't send that."""
    given = request.headers.get(KEY_HEADER)
    if given is not None or request.endpoint not in BASIC:
        return given
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    try:
        text = base64.b64decode(rest, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2] if scheme.lower() == "basic" else None


def _answer_error(error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.code is not None and error.code < 500:
        allowed = {"Allow": ", ".join(sorted(error.valid_methods or ()))} if isinstance(error, MethodNotAllowed) else {}
        error = WireError(error.code, STATUSES.get(error.code, "istek geçersiz"), allowed)
    if not isinstance(error, WireError):
        _log.error("internal_error", exc_info=error)
        error = WireError(500, "iç hata")
    elif error.status >= 500:
        _log.error("not_stored", status=error.status, exc_info=error)
    return refusal(error)
