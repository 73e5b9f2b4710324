"""What every command gets: where to write, and the client made at its first use."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mingora.api_texts import people_text
from mingora.i18n import _
from mingora.output import Output

if TYPE_CHECKING:
    from mingora.client import Client
    from mingora.errors import MingoraError


class Context:
    """`interrupted`: what Ctrl-C says, set by commands that leave something going."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.interrupted: str | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            from mingora.client import Client

            self._client = Client()
            self._client.on_outage = self._tell_outage
        return self._client

    def _tell_outage(self, error: MingoraError) -> None:
        text = _("{reason}. Waiting for the platform to come back.")
        self.out.note(text.format(reason=people_text(error).rstrip(".")))

    def close(self) -> None:
        self.out.clear_bar()
        if self._client is not None:
            self._client.transport.close()


class Command(NamedTuple):
    """`help` is a function so that it is translated when the parser is made. `arguments` adds the command's own."""

    name: str
    help: Callable[[], str]
    run: Callable[[argparse.Namespace, Context], int]
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _parser: None

    def add_to(self, commands: Any, shared: argparse.ArgumentParser) -> None:
        text = self.help()
        parser = commands.add_parser(self.name, parents=[shared], help=text, description=text)
        self.arguments(parser)
        parser.set_defaults(run=self.run)
