"""Splits one origin by path over the services, as the gateway does in front of separate ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mingora_common.http import API_PREFIX
from mingora_common.serving import Wsgi

# The first part of the path after the prefix (docs/protocol.md); everything else is api's, its 404s included.
SERVICE_OF = {"objects": "blobstore", "nodes": "scheduler", "explain": "scheduler"}


class Router:
    """A WSGI application over the three services' own.

    ``/internal/*`` goes to blobstore, which asks for the shared key: no gateway stands in front to hide it. Without any
    key there is nothing there.
    ``/healthz`` and ``/readyz`` answer for all: the first service that isn't ready answers.
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
        for service in self._services.values():
            status: list[str] = []
            answer = service(environ.copy(), lambda line, *_rest, status=status: status.append(line))
            try:
                text = b"".join(answer)
            finally:
                getattr(answer, "close", lambda: None)()
            if not status[0].startswith("200"):
                start_response(status[0], [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
                return [text]
        text = json.dumps({"status": "ok"}).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text]


def service_of(path: str) -> str:
    """The service that a path belongs to."""
    if path.startswith("/internal/"):
        return "blobstore"
    if path.startswith(API_PREFIX + "/"):
        return SERVICE_OF.get(path[len(API_PREFIX) + 1 :].split("/", 1)[0], "api")
    return "api"
