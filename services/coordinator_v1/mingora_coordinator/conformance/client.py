"""Ask a coordinator over HTTP, whatever it answers: bounded in bytes and in time, no redirect is followed."""

from __future__ import annotations

import copy
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

SILENCE = 30.0  # seconds without a byte
JSON_BYTES, JSON_SECONDS = 1 << 20, 60.0
WEIGHTS_BYTES, WEIGHTS_SECONDS = 1 << 30, 900.0
LARGEST_HEADER = 100_000_000  # bytes of a safetensors header: as many as the safetensors library takes
# Of OpenSSL: the authority isn't known, or the certificate is its own authority.
UNKNOWN_AUTHORITY = (18, 19, 20, 21)
DEEPEST = 20  # objects and arrays inside each other
CHUNK = 1 << 20  # bytes
SHOWN = 160  # characters of an answer's body in a report


class BadAddress(ValueError):
    """The address can't be asked; the text says why, for the person who typed it."""


class NoAnswer(Exception):
    """No complete HTTP answer came; the text says what came instead."""


class NotJson(ValueError):
    """The body isn't UTF-8 JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. ``version`` is 11 for HTTP/1.1; the headers' names are in lower case."""

    path: str
    status: int
    version: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body; raises NotJson, also for what is nested more than the protocol has any use for."""
        try:
            value = json.loads(self.body.decode("utf-8"), parse_constant=_no_json)
        except (ValueError, RecursionError):
            raise NotJson from None
        level = [value]
        for _ in range(DEEPEST):
            level = [inner for outer in level for inner in _inside(outer)]
            if not level:
                return value
        raise NotJson

    @property
    def shown(self) -> str:
        """The answer in a line that any terminal can show."""
        kind = self.headers.get("content-type", "no Content-Type")
        text = self.body[:SHOWN].decode("utf-8", "replace") if "octet-stream" not in kind else f"{len(self.body)} bytes"
        return f"{self.status} {printable(kind)[:60]} {printable(text)}".rstrip()


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _no_json(constant: str) -> NoReturn:
    """JSON has no NaN and no Infinity."""
    raise NotJson(constant)


def printable(text: str) -> str:
    """``text`` without anything that could steer a terminal, no longer than SHOWN."""
    return "".join(character if character.isprintable() else " " for character in text[:SHOWN])


class Client:
    """One coordinator; every request has a connection of its own."""

    def __init__(self, url: str, key: str | None, ca_file: str | None = None) -> None:
        """``url`` may have a path, under which the protocol's routes lie; ``ca_file`` has the authorities (PEM) to
        trust in the place of the machine's. Raises BadAddress.
        """
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            raise BadAddress("not an address") from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise BadAddress("the address has to begin with https:// (or http://127.0.0.1)")
        if parts.username is not None or parts.query or parts.fragment:
            raise BadAddress("the address may have no user, no query and no fragment")
        self.encrypted, self.local = parts.scheme == "https", self._host == "127.0.0.1"
        if key is not None and not (self.encrypted or self.local):
            raise BadAddress("a key is sent over HTTPS, or to 127.0.0.1")
        if key is not None and not (key.isascii() and key.isprintable() and key):
            raise BadAddress("a key has printable ASCII characters")
        self._base, self._key = parts.path.rstrip("/"), key
        try:
            self._tls = ssl.create_default_context(cafile=ca_file) if self.encrypted else None
        except OSError as error:
            raise BadAddress(f"--ca-file: no PEM certificates there ({error.strerror or 'unreadable'})") from None

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key."""
        return self._key is not None

    def bearing(self, key: str | None) -> Client:
        """The same coordinator, asked with another key, or with none."""
        other = copy.copy(self)
        other._key = key
        return other

    def get(self, path: str, parameters: Mapping[str, object] | None = None) -> Answer:
        """Ask for JSON."""
        return self._ask("GET", path, parameters, None, JSON_BYTES, JSON_SECONDS)

    def weights(self) -> Answer:
        """Ask for /agirlik, which may be large."""
        return self._ask("GET", "/agirlik", None, None, WEIGHTS_BYTES, WEIGHTS_SECONDS)

    def post(
        self,
        path: str,
        parameters: Mapping[str, object],
        body: bytes,
        *,
        kind: str = "application/octet-stream",
        length: int | None = None,
    ) -> Answer:
        """Send ``body``; ``length`` is what Content-Length says where that is more than there will be."""
        headers = {"Content-Type": kind, "Content-Length": str(len(body) if length is None else length)}
        return self._ask("POST", path, parameters, (headers, body), JSON_BYTES, WEIGHTS_SECONDS)

    def _ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, object] | None,
        sent: tuple[dict[str, str], bytes] | None,
        most_bytes: int,
        seconds: float,
    ) -> Answer:
        headers, body = sent or ({}, b"")
        if self._key is not None:
            headers = headers | {"X-Anahtar": self._key}
        target = self._base + path + (f"?{urlencode(parameters)}" if parameters else "")
        try:
            with self._connection(seconds) as connection:
                connection.putrequest(method, target)
                for name, value in headers.items():
                    connection.putheader(name, value)
                return self._answer(connection, path, body, most_bytes)
        except ssl.SSLCertVerificationError as error:
            raise NoAnswer(_distrust(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"{method} {path}: {type(error).__name__} {printable(str(error))}".rstrip()) from None

    @contextmanager
    def _connection(self, seconds: float) -> Iterator[http.client.HTTPConnection]:
        """A connection that ends after ``seconds``, also where bytes dribble, and in TLS's handshake too."""
        deadline = time.monotonic() + seconds
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port)
        opened: socket.socket = _connected(connection.host, connection.port, deadline)
        if self._tls is not None:
            opened = self._tls.wrap_socket(opened, server_hostname=self._host, do_handshake_on_connect=False)
        connection.sock = opened
        end = threading.Timer(deadline - time.monotonic(), _cut, (opened,))
        end.daemon = True
        end.start()
        try:
            if isinstance(opened, ssl.SSLSocket):
                opened.do_handshake()
            yield connection
        finally:
            end.cancel()
            connection.close()

    def _answer(self, connection: http.client.HTTPConnection, path: str, body: bytes, most_bytes: int) -> Answer:
        # It may answer and close without having read everything; the answer is still to be read then.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(body or None)
        response = connection.getresponse()
        read = bytearray()
        while part := response.read(CHUNK):
            read += part
            if len(read) > most_bytes:
                raise NoAnswer(f"{path}: more than {most_bytes} bytes")
        if response.length:
            raise NoAnswer(f"{path}: {response.length} bytes less than Content-Length says")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(path, response.status, response.version, headers, bytes(read))


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """A TCP connection to the first of the host's addresses that takes one. Raises OSError."""
    failure: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        tried = socket.socket(family, kind, protocol)
        try:
            tried.settimeout(min(SILENCE, left))
            tried.connect(address)
            tried.settimeout(SILENCE)
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tried
        except OSError as error:
            tried.close()
            failure = error
    raise failure


def _cut(opened: socket.socket) -> None:
    """End what goes on over the connection, if it is still there."""
    with suppress(OSError):
        # The socket's own method also where it is a TLS one: that of TLS forgets the session under the reader.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    """Why the coordinator's certificate isn't trusted, and what to do where its authority is unknown."""
    if error.verify_code in UNKNOWN_AUTHORITY:
        return (
            "its certificate is of an authority that this machine doesn't know: "
            "give the authority's certificate with --ca-file FILE"
        )
    return f"its certificate isn't valid: {printable(error.verify_message)}"
