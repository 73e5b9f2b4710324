"""Structured logs on stderr, without secrets: one JSON object a line, plain text on a terminal.

The request id is the client's, or the gateway's, or made here; it goes with the request to blobstore and into the tasks
that the request causes (``http.py``, ``blobs.py``, ``hints.py``).
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_TOKEN = re.compile(r"mg[unl]_[A-Za-z0-9_-]{20,}")
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^@/\s]+@")
_SECRET_NAMES = ("password", "token", "secret", "authorization", "key")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_REQUEST = "request"


def configure(service: str) -> None:
    """Set up logging for a process of ``service``; the standard library's loggers go the same way."""
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of each of its own plug-ins at every start
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *processors,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def begin(request_id: object, **bound: Any) -> str:
    """This thread begins something new: what it logs carries ``request_id`` (a fresh one if it can't be one) and
    ``bound``. The id."""
    known = isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id) is not None
    chosen = str(request_id) if known else secrets.token_hex(8)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound, **{_REQUEST: chosen})
    return chosen


def request_id() -> str | None:
    """The id of the request that this thread works for."""
    found = structlog.contextvars.get_contextvars().get(_REQUEST)
    return None if found is None else str(found)


def trace() -> dict[str, str]:
    """The request id as it goes with a task; :func:`traced` reads it there."""
    found = request_id()
    return {} if found is None else {_REQUEST: found}


def traced(meta: object) -> object:
    """The request id that :func:`trace` put there, unchecked; None without one."""
    return meta.get(_REQUEST) if isinstance(meta, Mapping) else None


def hide_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank every field whose name says secret, every token, and the password of every address."""
    for name, value in event.items():
        event[name] = _hidden(name, value)
    return event


def _hidden(name: object, value: Any) -> Any:
    if name in _SECRET_NAMES:
        return "[hidden]"
    if isinstance(value, str):
        return _URL_PASSWORD.sub(r"\1[hidden]@", _TOKEN.sub("[hidden token]", value))
    if isinstance(value, Mapping):
        return {key: _hidden(key, each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_hidden(None, each) for each in value]
    return value


def _renderer() -> Any:
    if not sys.stderr.isatty():
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    # The renderer's own tracebacks would show local variables, secrets among them.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ, exception_formatter=plain)
