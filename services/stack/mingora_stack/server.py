"""The one HTTP server of the stack: gunicorn with threads over the three services.

Run as ``python -m mingora_stack.server``.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mingora_common import logs
from mingora_common.pace import Paced
from mingora_common.serving import STALL_SECONDS, Server, gunicorn_settings
from mingora_stack import platform, settings
from mingora_stack.launch import die_with_parent


class TlsConnection(Paced, ssl.SSLSocket):
    """A TLS connection whose client may not stall, not even in the handshake.

    Python reads on through the limit that a plain connection takes over from its listening socket.
    """

    def setblocking(self, flag: bool) -> None:
        self.settimeout(STALL_SECONDS if flag else 0.0)

    def do_handshake(self, block: bool = False) -> None:
        self.settimeout(STALL_SECONDS)
        super().do_handshake(block)


def server_settings() -> dict[str, Any]:
    """gunicorn's settings for this stack: its sockets, its certificate, and an end with its supervisor."""
    descriptors = map(int, os.environ[settings.LISTEN_FDS].split(","))
    chosen = gunicorn_settings(descriptors, platform.waiting_places(os.environ)) | {"post_fork": _after_fork}
    certificate = os.environ.get(settings.CERTIFICATE)
    return chosen | ({"certfile": certificate, "ssl_context": _tls_context} if certificate else {})


def _after_fork(_arbiter: Any, worker: Any) -> None:
    die_with_parent(worker.ppid)


def _tls_context(config: Any, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Called for each connection: the same context until the certificate on disk is renewed."""
    return _context_of(config.certfile, Path(config.certfile).stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _context_of(certificate: str, _changed_at: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = TlsConnection
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate)
    return context


def main() -> None:
    """Serve until SIGTERM."""
    logs.configure("server")
    Server(lambda: platform.build(os.environ), server_settings()).run()


if __name__ == "__main__":
    main()
