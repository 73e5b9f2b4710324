"""HTTP to one server: kept-alive connections a thread, the retry rule applied, errors of the tree in errors.py.

Nothing leaves for a plain-HTTP address that isn't loopback (AUTH-5), redirects aren't followed (a token never goes
to another host), and TLS is verified, against `ca_file` alone when one is given.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from mingora.errors import (
    ApiError,
    LostAnswer,
    NotLoggedIn,
    NotSent,
    OutcomeUnknown,
    RateLimited,
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
CHUNK = 1024 * 1024
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


class Transport:
    """A server and a token. Threads may share it; each gets connections of its own.

    `token`: a text, a function asked before every request, or None (only POST /tokens works).
    `sleep` is what retries wait with; an exception from it ends the request.
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
        self._sleep = sleep
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
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
                return Answer(response.status, _headers(response), _parsed(_read(response, MAX_JSON_BYTES)))

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
                return Answer(response.status, _headers(response), _read(response, limit))

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
            yield Answer(response.status, _headers(response), None), _steps(response)

    def close(self) -> None:
        """Closes every thread's connection. A request in flight elsewhere ends with an error."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            connection.close()
        self._local = threading.local()

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
        connection = self._connection(timeout or READ_TIMEOUT, fresh)
        clean = False
        try:
            response = self._send(connection, method, _target(path, query), body, self._request_headers(headers))
            if response.status >= 300:
                raise _api_error(response.status, _headers(response), _read(response, MAX_JSON_BYTES))
            yield response
            clean = response.isclosed() and not response.will_close
        except ApiError:
            clean = response.isclosed() and not response.will_close
            raise
        finally:
            if clean:
                self._local.used = time.monotonic()
            else:
                self._drop(connection)

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
            except (BrokenPipeError, ConnectionResetError):
                # The server may refuse a body half-way: what it said then is worth more than the broken pipe.
                if body is None:
                    raise
            return connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            raise LostAnswer(
                _("No answer from {server}: {reason}").format(server=self.server.origin, reason=_why(error))
            ) from error

    def _request_headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        result = {"Host": self.server.netloc, "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        token = self._token() if callable(self._token) else self._token
        if token:
            if not _TOKEN.fullmatch(token):  # http.client would name it in its error
                raise NotLoggedIn(_("The token has characters that no token has."))
            result["Authorization"] = f"Bearer {token}"
        result.update(headers or {})
        return result

    # -- connections ------------------------------------------------------------------------------------------

    def _connection(self, timeout: float, fresh: bool) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is not None and kept.sock is not None:
            idle = time.monotonic() - self._local.used
            if not (fresh and idle > FRESH_SECONDS) and not _readable(kept.sock):
                kept.sock.settimeout(timeout)
                return kept
            self._drop(kept)
        connection = self._connect()
        connection.sock.settimeout(timeout)
        self._local.connection, self._local.used = connection, time.monotonic()
        with self._lock:
            self._open.add(connection)
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        import http.client
        import ssl

        host, port = self.server.address
        connection: http.client.HTTPConnection
        if self.server.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT, context=self._tls())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except ssl.SSLError as error:
            connection.close()
            raise TlsError(
                _("The TLS connection to {server} failed: {reason}").format(
                    server=self.server.origin, reason=_why(error)
                ),
                hint=_("If the server has an authority of its own, name its certificate with --ca-file."),
            ) from error
        except (OSError, UnicodeError) as error:
            connection.close()
            raise NotSent(
                _("{server} can't be reached: {reason}").format(server=self.server.origin, reason=_why(error))
            ) from error
        return connection

    def _tls(self) -> ssl.SSLContext:
        import ssl

        with self._lock:
            if self._context is None:
                try:
                    context = ssl.create_default_context(cafile=self._ca_file)
                except (OSError, ssl.SSLError) as error:
                    raise TlsError(
                        _("The CA file {path} can't be used: {reason}").format(path=self._ca_file, reason=_why(error))
                    ) from error
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                self._context = context
            return self._context

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        with self._lock:
            self._open.discard(connection)
        if getattr(self._local, "connection", None) is connection:
            self._local.connection = None


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


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _steps(response: http.client.HTTPResponse) -> Iterator[bytes]:
    import http.client

    left = response.length
    while True:
        try:
            block = response.read1(CHUNK) if left is None else response.read(min(CHUNK, left))
        except (http.client.HTTPException, OSError) as error:
            raise LostAnswer(_("The answer broke off: {reason}").format(reason=_why(error))) from error
        if left is not None:
            left -= len(block)
            if not block and left:
                raise LostAnswer(_("The answer broke off: {reason}").format(reason=_("connection closed")))
        if not block:
            response.close()
            return
        yield block
        if left == 0:
            response.close()
            return


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    for block in _steps(response):
        size += len(block)
        if size > limit:
            raise LostAnswer(_("The server's answer is too long."))
        blocks.append(block)
    return b"".join(blocks)


def _parsed(body: bytes) -> Any:
    """The JSON of an answer; None without a body. What isn't JSON doesn't come from this API: the answer is lost."""
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError) as error:
        raise LostAnswer(_("The server's answer is not JSON.")) from error


def _api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of an answer; a body that isn't this API's (a proxy's page) gets the code `http_<status>`."""
    fields: dict[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        fields = dict(json.loads(body)["error"])
    code = str(fields.pop("code", f"http_{status}"))
    message = str(fields.pop("message", "")) or _("The server answered with status {status}.").format(status=status)
    retryable = fields.pop("retryable", False) is True
    kind = RateLimited if status == 429 else ApiError
    return kind(
        code,
        status,
        message,
        retryable=retryable,
        fields=fields,
        retry_after=_retry_after(headers.get("retry-after")),
        request_id=headers.get("x-request-id"),
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which may also be a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _why(error: BaseException) -> str:
    """A short reason without Python's class names where the system has words for it."""
    if isinstance(error, TimeoutError):
        return _("timed out")
    verify = getattr(error, "verify_message", None)
    if verify:
        return str(verify)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
