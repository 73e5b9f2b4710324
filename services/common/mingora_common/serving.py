"""How every service is served: gunicorn with threads, which no slow client and no waiting read can use up.

The embedded stack serves all services in one such process; in containers each service has a process of its own.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import TConn, ThreadWorker

from mingora_common.config import ConfigError, Env
from mingora_common.errors import INTERNAL, INVALID_REQUEST
from mingora_common.pace import Paced, PacedConnection

if TYPE_CHECKING:  # it brings Redis's client along, which a server without waiting reads does without
    from mingora_common.wake import Waiters

# Threads for all that doesn't wait on purpose. They must be more than the clients that send or take bytes slowly:
# such a client keeps its thread until it is done, has stalled (STALL_SECONDS) or fallen behind (pace.py).
RESERVE_THREADS = 128
# A client that stops sending or taking bytes for this long is let go, so that it doesn't keep a thread for ever.
STALL_SECONDS = 60
BACKLOG = 1024
# Longer than any wait, so that clients keep their connection, and than a gateway keeps an idle one (Caddyfile).
KEEPALIVE_SECONDS = 75

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Served:
    """The WSGI application, and the waiting reads that a stopping server lets go of first."""

    wsgi: Wsgi
    waiters: tuple[Waiters, ...] = ()

    def release_waiters(self) -> None:
        """Answer every waiting read now, and take no more."""
        for waiters in self.waiters:
            waiters.close()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service that has a process of its own listens (``MINGORA_LISTEN``)."""

    host: str
    port: int
    setting: str = "MINGORA_LISTEN"
    """What the operator changes to mend it."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read and check the environment; raises ``ConfigError``."""
        env = Env(environ)
        text = env.text("MINGORA_LISTEN", "127.0.0.1:8000")
        env.check()
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
            raise ConfigError(f"MINGORA_LISTEN must be an address and a port such as 0.0.0.0:8000, not {text!r}")
        return cls(host.strip("[]"), int(port))

    def bind(self) -> socket.socket:
        """A listening socket; raises ``ConfigError`` when the address is taken or isn't one of this machine's."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            limit_stalls(listener)
            listener.bind((self.host, self.port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(f"{self.host}:{self.port} ({self.setting}) can't be used: {error.strerror}") from error
        return listener


def limit_stalls(listener: socket.socket) -> None:
    """On Linux an accepted connection takes these limits over from its listening socket."""
    if sys.platform.startswith("linux"):
        limit = struct.pack("@ll", STALL_SECONDS, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def unreadable(status: int) -> dict[str, Any]:
    """The body of the server's own answer to what can't be read as a request."""
    error = {"code": INVALID_REQUEST.code, "message": "The request can't be read.", "retryable": False}
    return {"error": error if status < 500 else {**error, "code": INTERNAL.code, "message": INTERNAL.message}}


class _JsonErrors:
    """A connection to which gunicorn writes an error: its status goes out, with JSON for the page of HTML."""

    def __init__(self, connection: Any, body: Callable[[int], dict[str, Any]]) -> None:
        self._connection = connection
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendall(self, data: bytes) -> None:
        """gunicorn hands over the whole answer at once."""
        line = data.partition(b"\r\n")[0]
        body = json.dumps(self._body(int(line.split()[1])), ensure_ascii=False).encode()
        head = f"\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._connection.sendall(line + head.encode() + body)


class ServiceWorker(ThreadWorker):  # type: ignore[misc]
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

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """A request that can't be read is told so as every other error is, not by gunicorn's page of HTML."""
        super().handle_error(req, _JsonErrors(client, self.error_body), addr, exc)

    error_body = staticmethod(unreadable)

    def murder_keepalived(self, force: bool = False) -> None:
        super().murder_keepalived(force or not self.alive)


class ServiceLogger(Logger):  # type: ignore[misc]
    """gunicorn's own messages, through the services' log format, without what a request said: it may hold secrets."""

    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """gunicorn repeats the part of a request that it couldn't read: a token, where a colon is missing."""
        error = sys.exc_info()[1]
        if error is None:
            super().warning(msg, *args, **kwargs)
        else:
            super().warning("A request can't be read: %s", type(error).__name__)

    def exception(self, msg: object, *_args: Any, **_kwargs: Any) -> None:
        """A client that stalls is nothing to look into. What else is, is told without the address that was asked for,
        which may hold a token."""
        if isinstance(sys.exc_info()[1], BlockingIOError | TimeoutError):
            self.debug("A client stalled.")
        else:
            super().exception(str(msg).partition(" %")[0])

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class Server(BaseApplication):  # type: ignore[misc]
    """The application as gunicorn starts it: settings before the fork; pools, connections and threads after it.

    Args:
        build: makes the application, in the process that serves it.
        settings: :func:`gunicorn_settings`, with what else this server needs.
    """

    def __init__(self, build: Callable[[], Served], settings: Mapping[str, Any]) -> None:
        self._build = build
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Wsgi:
        self._served = self._build()
        return self._served.wsgi

    def release_waiters(self) -> None:
        self._served.release_waiters()


def gunicorn_settings(descriptors: Iterable[int], waiting_places: int) -> dict[str, Any]:
    """What differs from gunicorn's defaults, for listening sockets and a number of reads that may wait at once."""
    threads = waiting_places + RESERVE_THREADS
    chosen: dict[str, Any] = {
        "bind": [f"fd://{number}" for number in descriptors],
        "worker_class": ServiceWorker,
        "workers": 1,
        "threads": threads,
        "worker_connections": 4 * threads,
        "timeout": 60,
        "graceful_timeout": 2,
        "keepalive": KEEPALIVE_SECONDS,
        "limit_request_line": 8190,
        "limit_request_fields": 64,
        "limit_request_field_size": 8190,
        "forwarded_allow_ips": "",  # what a proxy says of the client is for mingora_common.http to judge
        "control_socket_disable": True,
        "logger_class": ServiceLogger,
    }
    if os.access("/dev/shm", os.W_OK):  # noqa: S108 - gunicorn makes a private file there
        chosen["worker_tmp_dir"] = "/dev/shm"  # noqa: S108 - a heartbeat file on a busy disk would block the worker
    return chosen
