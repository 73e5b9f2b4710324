"""Whose word counts on where a request comes from: the proxies that the operator names by address, nobody else.

werkzeug's ProxyFix counts hops, whoever they are: a client that reaches a service without passing the gateway could
claim any address. Here ``X-Forwarded-For`` is read from the right for as long as the one who wrote it is trusted; the
first address that isn't a trusted proxy's is the client's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Networks = tuple[IPv4Network | IPv6Network, ...]
Address = IPv4Address | IPv6Address
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

MAX_HOPS = 32
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?")
_WITH_PORT = re.compile(r"([0-9.]{7,15}):[0-9]{1,5}")
_SCHEMES = ("http", "https")


def networks(text: str) -> Networks:
    """Networks and addresses from a list with commas; raises ``ValueError`` that repeats the wrong one."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


class TrustedProxies:
    """WSGI middleware: sets ``REMOTE_ADDR`` and ``wsgi.url_scheme`` to what trusted proxies say of the client.

    A peer without an address (a Unix socket's) is no trusted proxy.
    """

    def __init__(self, app: Wsgi, trusted: Networks) -> None:
        self._app = app
        self._trusted = trusted

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        peer = parsed(environ.get("REMOTE_ADDR", ""))
        if peer is not None and self._is_trusted(peer):
            environ["REMOTE_ADDR"] = str(self._client(peer, environ.get("HTTP_X_FORWARDED_FOR", "")))
            scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
            if scheme in _SCHEMES:
                environ["wsgi.url_scheme"] = scheme
        return self._app(environ, start_response)

    def _client(self, peer: Address, forwarded: str) -> Address:
        """The right-most address that isn't a trusted proxy's; when one can't be read, who passed it on."""
        client = peer
        for text in reversed(forwarded.split(",")[-MAX_HOPS:]):
            address = parsed(text.strip())
            if address is None:
                break
            client = address
            if not self._is_trusted(client):
                break
        return client

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def parsed(text: str) -> Address | None:
    """An address, perhaps with a port, as proxies write them; None for anything else."""
    found = _BRACKETED.fullmatch(text) or _WITH_PORT.fullmatch(text)
    try:
        address = ip_address(found[1] if found else text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address
