"""Reads a server's address and refuses the ones nothing may be sent to (AUTH-5)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from mingora.errors import InsecureServer, UsageProblem
from mingora.i18n import _


@dataclass(frozen=True)
class Server:
    scheme: str
    host: str
    port: int
    netloc: str

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect. Over plain HTTP `localhost` isn't looked up: a name server could send it elsewhere."""
        if self.scheme == "http" and self.host == "localhost":
            return "127.0.0.1", self.port
        return self.host, self.port


def parse_server(text: str) -> Server:
    """The server that `text` names. Resolves and sends nothing.

    Raises `UsageProblem` for what isn't an address, `InsecureServer` for plain HTTP beyond loopback.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageProblem(_("{server} is not a server address.").format(server=repr(text))) from error
    if parts.scheme not in {"http", "https"} or not host or any(c.isspace() or ord(c) < 32 for c in text.strip()):
        raise UsageProblem(
            _("{server} is not a server address.").format(server=repr(text)),
            hint=_("It looks like https://mingora.example.org or http://127.0.0.1:8080."),
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageProblem(_("A server address has no user name, query or fragment."))
    if parts.path.rstrip("/") not in {"", "/api/research/v1"}:
        raise UsageProblem(_("A server address has no path: leave out {path}.").format(path=parts.path))
    if parts.scheme == "http" and not is_loopback(host):
        raise InsecureServer(
            _("{server} is not encrypted: only HTTPS is allowed beyond this machine.").format(server=text.strip()),
            hint=_("Nothing was sent. Use an https:// address."),
        )
    name = f"[{host}]" if ":" in host else host
    return Server(
        parts.scheme, host, port or (443 if parts.scheme == "https" else 80), name if port is None else f"{name}:{port}"
    )


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a literal loopback address; other names aren't looked up."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
