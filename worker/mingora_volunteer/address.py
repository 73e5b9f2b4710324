"""Reads a coordinator's address and refuses the ones nothing may be sent to.

Source: coordinator protocol v1, general rules: HTTPS everywhere, plain HTTP on 127.0.0.1 alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from mingora.errors import InsecureServer, UsageProblem
from mingora_volunteer.texts import _

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """`base` is the path in front of the protocol's own, without a slash at its end."""

    scheme: str
    host: str
    port: int
    netloc: str
    base: str

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.base}"


def parse_address(text: str) -> Address:
    """The coordinator that `text` names. Resolves and sends nothing.

    Raises `UsageProblem` for what isn't an address, `InsecureServer` for plain HTTP to anything but 127.0.0.1.
    """
    wrong = UsageProblem(
        _("{url} is not a coordinator's address.").format(url=repr(text)),
        hint=_("It looks like https://coordinator.example.org or http://127.0.0.1:8750."),
    )
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text or "?" in text or "#" in text:
        raise wrong
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        raise wrong
    if parts.username is not None:
        raise UsageProblem(_("A coordinator's address has no user name; a key is given by --key-file."))
    if parts.scheme == "http" and host != LOOPBACK:
        raise InsecureServer(
            _("{url} is not encrypted: plain HTTP is allowed to 127.0.0.1 alone.").format(url=text),
            hint=_("Nothing was sent. Use an https:// address."),
        )
    name = f"[{host}]" if ":" in host else host
    return Address(
        parts.scheme,
        host,
        port or (443 if parts.scheme == "https" else 80),
        name if port is None else f"{name}:{port}",
        parts.path.rstrip("/"),
    )
