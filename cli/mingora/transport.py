"""HTTP to one server: kept-alive connections a thread, the retry rule applied, errors of the tree in errors.py.

Nothing leaves for a plain-HTTP address that isn't loopback (AUTH-5), redirects aren't followed (a token never goes
to another host), and TLS is verified, against `ca_file` alone when one is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from mingora import faults
from mingora.answers import api_error, headers_of, parsed, read_all, steps, why
from mingora.errors import (
    ApiError,
    LostAnswer,
    NotLoggedIn,
    NotSent,
    OutcomeUnknown,
    TlsError,
    TransportError,
    outcome_unknown,
    retry_delay,
)
from mingora.i18n import _
from mingora.server import Server, parse_server

if TYPE_CHECKING:
    import http.client
    import ssl

API = "/api/research/v1"
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0
MAX_JSON_BYTES = 32 * 1024 * 1024
# A write that can't be repeated doesn't go out on a connection idle for longer: the server may be closing it.
FRESH_SECONDS = 1.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")

Query = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Answer:
    """`headers` has lower-case names; `data` is parsed JSON, bytes, or None for an empty body."""

    status: int
    headers: Mapping[str, str]
    data: Any


@dataclass
class _Kept:
    """A thread's open connection and when it was last used (monotonic seconds)."""

    connection: http.client.HTTPConnection
    used: float


class Transport:
    """A server and a token. Threads may share it; each gets connections of its own.

    `token`: a text, a function asked before every request, or None (only POST /tokens works).
    `sleep` is what retries wait with; an exception from it ends the request. `request_id` goes with every request, so
    that an operator finds all that came of it in the platform's logs.
    """

    def __init__(
        self,
        server: str,
        *,
        ca_file: str | None = None,
        token: str | Callable[[], str | None] | None = None,
        user_agent: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        from mingora import __version__

        self.server: Server = parse_server(server)
        self._ca_file = ca_file
        self._token = token
        self._user_agent = user_agent or f"mingora/{__version__}"
        self.request_id = os.urandom(8).hex()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._kept: dict[threading.Thread, _Kept] = {}
        self._context: ssl.SSLContext | None = None

    # -- requests ---------------------------------------------------------------------------------------------

    def request_json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        attempts: int | None = None,
    ) -> Answer:
        """Sends `body` as JSON (bytes as they are) and parses the answer's JSON; 204 gives `data` None.

        `timeout`: seconds without a byte, by default 60, longer than any waiting read. `idempotent`: whether an
        unclear outcome is sent again; by default yes for GET, HEAD and PUT. `attempts` bounds the tries (1: none
        again). Raises `ApiError`, `TransportError`, `OutcomeUnknown`.
        """
        extra = dict(headers or {})
        raw: bytes | memoryview | None = None
        if isinstance(body, bytes | memoryview):
            raw = body
        elif body is not None:
            raw = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            extra["Content-Type"] = "application/json"

        def once(safe: bool) -> Answer:
            with self._exchange(method, path, raw, query, extra, timeout, fresh=not safe) as response:
                body = read_all(response, MAX_JSON_BYTES)
                return Answer(response.status, headers_of(response), parsed(response.status, body))

        return self._with_retries(once, method, idempotent, attempts)

    def request_bytes(
        self,
        method: str,
        path: str,
        *,
        body: bytes | memoryview | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        attempts: int | None = None,
        limit: int = MAX_JSON_BYTES,
    ) -> Answer:
        """Like `request_json`, with bytes both ways; an answer over `limit` bytes is refused."""

        def once(safe: bool) -> Answer:
            with self._exchange(method, path, body, query, headers, timeout, fresh=not safe) as response:
                return Answer(response.status, headers_of(response), read_all(response, limit))

        return self._with_retries(once, method, idempotent, attempts)

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        """One GET, once, whose body is read in steps; a body cut short raises `LostAnswer`. See `transfer`."""
        with self._exchange("GET", path, None, query, headers, timeout, fresh=False) as response:
            yield Answer(response.status, headers_of(response), None), steps(response)

    def close(self) -> None:
        """Closes every thread's connection. A request in flight elsewhere ends with an error."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for one in kept.values():
            one.connection.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- one exchange -----------------------------------------------------------------------------------------

    def _with_retries(
        self, once: Callable[[bool], Answer], method: str, idempotent: bool | None, attempts: int | None
    ) -> Answer:
        safe = method in {"GET", "HEAD", "PUT"} if idempotent is None else idempotent
        attempt = 0
        while True:
            attempt += 1
            try:
                return once(safe)
            except (TransportError, ApiError) as error:
                last = attempts is not None and attempt >= attempts
                delay = None if last else retry_delay(error, attempt=attempt, idempotent=safe)
                if delay is None:
                    if not safe and outcome_unknown(error):
                        text = _("It is not known whether the request was carried out: {reason}")
                        raise OutcomeUnknown(text.format(reason=error.message), error) from error
                    raise
                self._sleep(delay)

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | memoryview | None,
        query: Query | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        *,
        fresh: bool,
    ) -> Iterator[http.client.HTTPResponse]:
        kept = self._connection(timeout or READ_TIMEOUT, fresh)
        clean = False
        try:
            faults.point(f"{method}{path}/before")
            response = self._send(kept.connection, method, _target(path, query), body, self._request_headers(headers))
            faults.point(f"{method}{path}/answered")
            try:
                if response.status >= 300:
                    raise api_error(response.status, headers_of(response), read_all(response, MAX_JSON_BYTES))
                yield response
            finally:
                clean = response.isclosed() and not response.will_close
        finally:
            kept.used = time.monotonic()
            if not clean:
                self._drop(kept)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | memoryview | None,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        import http.client

        if body is None and method in {"POST", "PUT"}:
            headers["Content-Length"] = "0"
        try:
            try:
                connection.request(method, target, body=body, headers=headers)
            except OSError as error:
                # The server may refuse a body half-way: what it said then is worth more than the broken pipe (which
                # TLS reports as an error of its own).
                if body is None or isinstance(error, TimeoutError):
                    raise
            return connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            raise LostAnswer(
                _("No answer from {server}: {reason}").format(server=self.server.origin, reason=why(error))
            ) from error

    def _request_headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        result = {"Host": self.server.netloc, "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        result["X-Request-Id"] = self.request_id
        token = self._token() if callable(self._token) else self._token
        if token:
            if not _TOKEN.fullmatch(token):  # http.client would name it in its error
                raise NotLoggedIn(_("The token has characters that no token has."))
            result["Authorization"] = f"Bearer {token}"
        result.update(headers or {})
        return result

    # -- connections ------------------------------------------------------------------------------------------

    def _connection(self, timeout: float, fresh: bool) -> _Kept:
        """This thread's connection: the kept one while the server hasn't ended it, else a new one."""
        thread = threading.current_thread()
        with self._lock:
            kept = self._kept.get(thread)
            gone = [self._kept.pop(other) for other in list(self._kept) if not other.is_alive()]
        for one in gone:
            one.connection.close()
        if kept is not None:
            stale = fresh and time.monotonic() - kept.used > FRESH_SECONDS
            if kept.connection.sock is not None and not stale and not _readable(kept.connection.sock):
                kept.connection.sock.settimeout(timeout)
                return kept
            self._drop(kept)
        kept = _Kept(self._connect(), time.monotonic())
        kept.connection.sock.settimeout(timeout)
        with self._lock:
            self._kept[thread] = kept
        return kept

    def _connect(self) -> http.client.HTTPConnection:
        import http.client
        import ssl

        from mingora.response import WholeResponse

        host, port = self.server.address
        connection: http.client.HTTPConnection
        if self.server.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT, context=self._tls())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        connection.response_class = WholeResponse
        try:
            connection.connect()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # cut off, as by a server that is stopping
            connection.close()
            raise self._not_reached(error) from error
        except ssl.SSLError as error:
            connection.close()
            raise TlsError(
                _("The TLS connection to {server} failed: {reason}").format(
                    server=self.server.origin, reason=why(error)
                ),
                hint=self._tls_hint(error),
            ) from error
        except (OSError, UnicodeError) as error:
            connection.close()
            raise self._not_reached(error) from error
        return connection

    def _not_reached(self, error: BaseException) -> NotSent:
        text = _("{server} can't be reached: {reason}")
        hint = _("Check the address, the network, and that the platform is running.")
        return NotSent(text.format(server=self.server.origin, reason=why(error)), hint=hint)

    def _tls_hint(self, error: ssl.SSLError) -> str:
        if error.reason in _NOT_TLS:
            return _("The server does not speak HTTPS at this address. Is it http://, or another port?")
        if getattr(error, "verify_code", 0) in _OTHER_NAME:
            return _("Use the name that the server's certificate is for.")
        if self._ca_file is not None:
            return _("Is {path} (--ca-file) the certificate of this server's authority?").format(path=self._ca_file)
        return _("If the server has an authority of its own, name its certificate with --ca-file.")

    def _tls(self) -> ssl.SSLContext:
        import ssl

        with self._lock:
            if self._context is None:
                try:
                    context = ssl.create_default_context(cafile=self._ca_file)
                except (OSError, ssl.SSLError) as error:
                    raise TlsError(
                        _("The CA file {path} can't be used: {reason}").format(path=self._ca_file, reason=why(error)),
                        hint=_("Log in again with the right one: mingora login --ca-file FILE"),
                    ) from error
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                self._context = context
            return self._context

    def _drop(self, kept: _Kept) -> None:
        kept.connection.close()
        with self._lock:
            if self._kept.get(threading.current_thread()) is kept:
                del self._kept[threading.current_thread()]


# What OpenSSL calls an answer that isn't TLS, and its X509_V_ERR_ codes for another host name or IP address.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
_OTHER_NAME = frozenset({62, 64})


def _readable(sock: Any) -> bool:
    """Whether bytes or an end wait on an idle connection: the server has closed it or is out of step."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _target(path: str, query: Query | None) -> str:
    target = API + quote(path, safe="/:-._~")
    pairs = {k: _text(v) for k, v in (query or {}).items() if v is not None}
    return f"{target}?{urlencode(pairs)}" if pairs else target


def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
