"""One HTTP exchange with the coordinator: its own connection, verified TLS, no redirect followed, answers in time."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast
from urllib.parse import urlencode

from mingora.answers import api_error, headers_of, read_all, why
from mingora.errors import ApiError, LostAnswer, NotSent, TlsError, UsageProblem
from mingora_volunteer import __version__
from mingora_volunteer.address import Address
from mingora_volunteer.deadline import TimedResponse
from mingora_volunteer.texts import _

CONNECT_TIMEOUT = 10.0
SILENCE_TIMEOUT = 120.0
# For a whole answer, however slowly it dribbles in; of one that is streamed, for its head.
ANSWER_TIMEOUT = 120.0
MAX_ERROR_BYTES = 64 * 1024
MAX_REASON = 300

Sender = Callable[[http.client.HTTPConnection], None]


class Exchanger:
    """`key` goes with every request as X-Anahtar; `ca_file` is the only authority that is trusted, when given.

    Raises `UsageProblem` when the file can't be used.
    """

    def __init__(self, address: Address, *, key: str | None = None, ca_file: str | None = None) -> None:
        self._address = address
        self._key = key
        self._context: ssl.SSLContext | None = None
        if address.scheme == "https":
            try:
                self._context = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                text = _("The CA file {path} can't be used: {reason}").format(path=ca_file, reason=why(error))
                raise UsageProblem(text) from error
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    @contextlib.contextmanager
    def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        send: Sender | None = None,
        streamed: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        """Sends one request and gives its answer, whose body is still to be read; `send` writes the request's body.

        The answer has `ANSWER_TIMEOUT` to be whole; the body of one that is `streamed` may take as long as it goes on.
        Raises `TransportError` without an answer, `ApiError` for every status from 300 on.
        """
        connection = self._connect()
        try:
            with self._answer(connection, method, path, query or {}, headers or {}, send) as response:
                if response.status >= 300:
                    raise _refusal(response)
                if streamed:
                    response.lift_deadline(SILENCE_TIMEOUT)
                yield response
        finally:
            connection.close()

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        send: Sender | None,
    ) -> TimedResponse:
        target = f"{self._address.base}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in {**self._headers(), **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            if send is not None:
                # The coordinator may refuse a body half-way: what it says then is worth more than the broken pipe.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
                    send(connection)
            connection.response_class = partial(TimedResponse, seconds=ANSWER_TIMEOUT)  # type: ignore[assignment]
            return cast(TimedResponse, connection.getresponse())
        except (http.client.HTTPException, OSError) as error:
            text = _("No answer from {server}: {reason}")
            raise LostAnswer(text.format(server=self._address.origin, reason=why(error))) from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "Host": self._address.netloc,
            "User-Agent": f"mingora-volunteer/{__version__}",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        if self._key is not None:
            headers["X-Anahtar"] = self._key
        return headers

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # cut off, as by a server that is stopping
            connection.close()
            raise self._not_reached(error) from error
        except ssl.SSLError as error:
            connection.close()
            text = _("The TLS connection to {server} failed: {reason}")
            raise TlsError(
                text.format(server=self._address.origin, reason=why(error)),
                hint=_("If the coordinator has an authority of its own, name its certificate with --ca-file."),
            ) from error
        except (OSError, UnicodeError) as error:
            connection.close()
            raise self._not_reached(error) from error
        connection.sock.settimeout(SILENCE_TIMEOUT)
        return connection

    def _not_reached(self, error: BaseException) -> NotSent:
        text = _("{server} can't be reached: {reason}")
        return NotSent(text.format(server=self._address.origin, reason=why(error)))


def _refusal(response: http.client.HTTPResponse) -> ApiError:
    """The error of an answer, in the coordinator's own words (`hata`) where it has some."""
    body = b""
    with contextlib.suppress(LostAnswer):  # the status says enough
        body = read_all(response, MAX_ERROR_BYTES)
    error = api_error(response.status, headers_of(response), b"")
    if response.status < 400:
        error.message = _("The coordinator sends its visitors to another address; that isn't followed.")
        error.hint = (response.getheader("Location") or "")[:MAX_REASON] or None
        return error
    with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
        told = json.loads(body)["hata"]
        if isinstance(told, str) and told:
            error.message = f"{response.status} {told[:MAX_REASON]}"
    return error
