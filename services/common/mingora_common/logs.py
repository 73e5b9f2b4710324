"""Structured logs: one JSON object a line on stderr, with the request id, and without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_TOKEN = re.compile(r"mg[unl]_[A-Za-z0-9_-]{20,}")
_SECRET_NAMES = ("password", "token", "secret", "authorization", "key")


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
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
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


def hide_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank every field whose name says secret, and every token inside a text."""
    for name, value in event.items():
        if name in _SECRET_NAMES:
            event[name] = "[hidden]"
        elif isinstance(value, str):
            event[name] = _TOKEN.sub("[hidden token]", value)
    return event
