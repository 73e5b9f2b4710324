"""The Mingora client: `from mingora import Client` (see client.py), and the `mingora` command (see cli.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mingora.client import Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> object:
    """Loads the client at its first use, so that `mingora --version` needn't."""
    if name == "Client":
        from mingora.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
