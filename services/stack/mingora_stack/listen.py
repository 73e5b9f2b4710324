"""The listening sockets. The supervisor holds them, so that no connection is refused while the server restarts."""

from __future__ import annotations

import contextlib
import errno
import socket

from mingora_common.serving import BACKLOG, limit_stalls
from mingora_stack.errors import StackError


def listen(port: int, *, everywhere: bool) -> list[socket.socket]:
    """Sockets on ``port`` (0: a free one): on 127.0.0.1, or on all addresses, IPv6 ones where the machine has them.

    Raises:
        StackError: the port is taken or may not be used.
    """
    first = _bound(socket.AF_INET, "0.0.0.0" if everywhere else "127.0.0.1", port)  # noqa: S104 - by --host only
    sockets = [first]
    if everywhere and socket.has_ipv6:
        with contextlib.suppress(StackError):  # no IPv6 here: IPv4 serves
            sockets.append(_bound(socket.AF_INET6, "::", first.getsockname()[1]))
    return sockets


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise StackError(f"No socket can be made: {error.strerror}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        limit_stalls(listener)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StackError(f"Port {port} is taken. Name another with --port, or --port 0 for a free one.") from error
        raise StackError(f"Port {port} can't be used: {error.strerror}.") from error
    return listener
