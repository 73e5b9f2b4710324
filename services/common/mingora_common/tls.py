"""TLS of a server that has its certificate itself, and no gateway before it."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mingora_common.pace import Paced
from mingora_common.serving import STALL_SECONDS


class TlsConnection(Paced, ssl.SSLSocket):
    """A TLS connection whose client may not stall, not even in the handshake.

    Python reads on through the limit that a plain connection takes over from its listening socket.
    """

    def setblocking(self, flag: bool) -> None:
        self.settimeout(STALL_SECONDS if flag else 0.0)

    def do_handshake(self, block: bool = False) -> None:
        self.settimeout(STALL_SECONDS)
        super().do_handshake(block)


def gunicorn_settings(certificate: str, key: str | None = None) -> dict[str, Any]:
    """What gunicorn needs besides for TLS with these PEM files; without ``key`` the certificate's file holds both."""
    return {"certfile": certificate, "keyfile": key, "ssl_context": context}


def context(config: Any, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Called for each connection: the same context until the certificate on disk is renewed."""
    return _context_of(config.certfile, config.keyfile, Path(config.certfile).stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _context_of(certificate: str, key: str | None, _changed_at: int) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.sslsocket_class = TlsConnection
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.load_cert_chain(certificate, key)
    return found
