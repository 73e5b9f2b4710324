"""An HTTP proxy that answers as an overloaded gateway would: 429, 502, 503, before or after the platform has acted."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ID = re.compile(r"/(?:[a-z]{3,5}_[A-Za-z0-9_-]+|[0-9]+)(?=/|$)")
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


@dataclass(frozen=True)
class Fault:
    """An answer in the platform's stead; with ``after`` the platform has carried out the request."""

    status: int
    retry_after: str | None = None
    after: bool = False


class StormProxy:
    """Passes requests on to a port of this machine. Of each route's requests the first ``times`` meet ``fault``.

    With ``only``, those routes alone do. ``before`` is called with the route of each request.
    ``seen`` has every request as ``(seconds, route, faulted)``.
    """

    def __init__(self, port: int) -> None:
        self.fault: Fault | None = None
        self.times = 0
        self.only: frozenset[str] | None = None
        self.before: Callable[[str], object] = lambda _route: None
        self.seen: list[tuple[float, str, bool]] = []
        self._met: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, port))
        self._server.daemon_threads = True
        threading.Thread(target=lambda: self._server.serve_forever(0.05), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def begin(self, fault: Fault | None, times: int = 0, only: frozenset[str] | None = None) -> None:
        """From now on, and counted from now."""
        with self._lock:
            self.fault, self.times, self.only = fault, times, only
            self.seen.clear()
            self._met.clear()

    def counts(self) -> Counter[str]:
        """How many requests of each route came, those that met a fault included."""
        with self._lock:
            return Counter(route for _at, route, _faulted in self.seen)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault_for(self, method: str, path: str) -> Fault | None:
        route = f"{method} {_ID.sub('/:', path.partition('?')[0]).removeprefix('/api/research/v1')}"
        with self._lock:
            met = self.fault is not None and self._met[route] < self.times and (not self.only or route in self.only)
            self._met[route] += met
            self.seen.append((time.monotonic(), route, met))
            fault = self.fault if met else None
        self.before(route)
        return fault


def _handler(proxy: StormProxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault_for(self.command, self.path)
            with contextlib.suppress(OSError, http.client.HTTPException):
                if fault is None:
                    self._answer(*self._passed_on(body))
                    return
                if fault.after:
                    self._passed_on(body)
                page = b"<html><title>Try again</title></html>"
                headers = [("Content-Type", "text/html")]
                if fault.retry_after is not None:
                    headers.append(("Retry-After", fault.retry_after))
                self._answer(fault.status, headers, page)
                return
            self.close_connection = True

        def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as server:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                server.request(self.command, self.path, body or None, headers)
                answer = server.getresponse()
                kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP | {"content-length"}]
                return answer.status, kept, answer.read()

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
