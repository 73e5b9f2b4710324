"""Splits one origin by path over the services, as the gateway does in front of separate ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mingora_common.http import API_PREFIX
from mingora_common.serving import Wsgi

# The first part of the path after the prefix (docs/protocol.md); everything else is api's, its 404s included.
SERVICE_OF = {"objects": "blobstore", "nodes": "scheduler", "explain": "scheduler"}
DOCUMENTS = {"blobstore.json": "blobstore", "scheduler.json": "scheduler"}


class Router:
    """A WSGI application over the three services' own.

    ``/internal/*`` goes to blobstore, which asks for the shared key: no gateway stands in front to hide it. Without any
    key there is nothing there.
    ``/healthz`` and ``/readyz`` answer for all, each service's dependencies by its name.
    ``/metrics`` is api's, which here shows what the whole process measures.
    """

    def __init__(self, services: Mapping[str, Wsgi]) -> None:
        self._services = services

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in ("/healthz", "/readyz"):
            return self._ask_all(environ, start_response)
        hidden = path.startswith("/internal/") and "HTTP_X_INTERNAL_KEY" not in environ
        return self._services["api" if hidden else service_of(path)](environ, start_response)

    def _ask_all(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        ready, checks = True, {}
        for name, service in self._services.items():
            status: list[str] = []
            answer = service(environ.copy(), lambda line, *_rest, status=status: status.append(line))
            try:
                text = b"".join(answer)
            finally:
                getattr(answer, "close", lambda: None)()
            ready = ready and status[0].startswith("200")
            with contextlib.suppress(ValueError, LookupError, TypeError):
                checks[name] = json.loads(text)["checks"]
        body: dict[str, Any] = {"status": "ok" if ready else "unavailable", **({"checks": checks} if checks else {})}
        text = json.dumps(body).encode()
        line = "200 OK" if ready else "503 Service Unavailable"
        start_response(line, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text]


def service_of(path: str) -> str:
    """The service that a path belongs to."""
    if path.startswith("/internal/"):
        return "blobstore"
    if path.startswith(API_PREFIX + "/"):
        first, _, rest = path[len(API_PREFIX) + 1 :].partition("/")
        return DOCUMENTS.get(rest, "api") if first == "openapi" else SERVICE_OF.get(first, "api")
    return "api"
