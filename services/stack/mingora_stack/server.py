"""The one HTTP server of the stack: gunicorn with threads over the three services.

Run as ``python -m mingora_stack.server``.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import TConn, ThreadWorker

from mingora_common import logs
from mingora_stack import platform, settings
from mingora_stack.launch import die_with_parent
from mingora_stack.listen import STALL_SECONDS
from mingora_stack.pace import Paced, PacedConnection

# Threads for all that doesn't wait on purpose. They must be more than the clients that send or take bytes slowly:
# such a client keeps its thread until it is done, has stalled (listen.STALL_SECONDS) or fallen behind (pace.py).
RESERVE_THREADS = 128


class StackWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, which lets go of waiting reads and idle connections as soon as it has to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM. The callback runs in the main loop: a lock must not be taken inside a signal handler."""
        if self.alive:
            self.method_queue.defer(self.app.release_waiters)
        super().handle_exit(sig, frame)

    def enqueue_req(self, conn: TConn) -> None:
        """A request has begun to arrive: the first of a connection, or a later one."""
        if not isinstance(conn.sock, Paced):
            conn.sock = PacedConnection(conn.sock)
        conn.sock.begin_request()
        super().enqueue_req(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        super().murder_keepalived(force or not self.alive)


class TlsConnection(Paced, ssl.SSLSocket):
    """A TLS connection whose client may not stall, not even in the handshake.

    Python reads on through the limit that a plain connection takes over from its listening socket.
    """

    def setblocking(self, flag: bool) -> None:
        self.settimeout(STALL_SECONDS if flag else 0.0)

    def do_handshake(self, block: bool = False) -> None:
        self.settimeout(STALL_SECONDS)
        super().do_handshake(block)


class StackLogger(Logger):  # type: ignore[misc]
    """gunicorn's own messages, through the services' log format."""

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """A client that stalls is nothing to look into."""
        if isinstance(sys.exc_info()[1], BlockingIOError | TimeoutError):
            self.debug("A client stalled.")
        else:
            super().exception(msg, *args, **kwargs)

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class StackServer(BaseApplication):  # type: ignore[misc]
    """The application as gunicorn starts it: settings before the fork; pools, connections and threads after it."""

    def load_config(self) -> None:
        for name, value in gunicorn_settings().items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        self._platform = platform.build(os.environ)
        return self._platform.wsgi

    def release_waiters(self) -> None:
        self._platform.release_waiters()


def gunicorn_settings() -> dict[str, Any]:
    """What differs from gunicorn's defaults."""
    certificate = os.environ.get(settings.CERTIFICATE)
    threads = platform.waiting_places(os.environ) + RESERVE_THREADS
    chosen: dict[str, Any] = {
        "bind": [f"fd://{number}" for number in os.environ[settings.LISTEN_FDS].split(",")],
        "worker_class": StackWorker,
        "workers": 1,
        "threads": threads,
        "worker_connections": 4 * threads,
        "timeout": 60,
        "graceful_timeout": 2,
        "keepalive": 75,  # longer than any wait, so that clients keep their connection
        "limit_request_line": 8190,
        "limit_request_fields": 64,
        "limit_request_field_size": 8190,
        "forwarded_allow_ips": "",  # no proxy stands in front: what a client says of itself changes nothing
        "control_socket_disable": True,
        "logger_class": StackLogger,
        "post_fork": _after_fork,
    }
    if os.access("/dev/shm", os.W_OK):  # noqa: S108 - gunicorn makes a private file there
        chosen["worker_tmp_dir"] = "/dev/shm"  # noqa: S108 - a heartbeat file on a busy disk would block the worker
    if certificate:
        chosen |= {"certfile": certificate, "ssl_context": _tls_context}
    return chosen


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
    StackServer().run()


if __name__ == "__main__":
    main()
