"""``mingora-stack up``: everything on one machine, from an empty folder to a clean stop."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mingora_stack import database, leftovers, settings, valkey
from mingora_stack.announce import announcement
from mingora_stack.childlogs import ChildLogs
from mingora_stack.errors import StackError
from mingora_stack.folder import DataFolder
from mingora_stack.listen import listen
from mingora_stack.ready import Readiness, takes_connections
from mingora_stack.signals import Signals
from mingora_stack.supervisor import Program, Supervisor
from mingora_stack.tls import Authority

START_SECONDS = 60.0
LOOK_SECONDS = 0.05
HOPELESS_FAILURES = 3  # a program that dies this often before it was ever ready won't come up by itself
CERTIFICATE_CHECK_SECONDS = 3600.0
OPEN_FILES = 16_384


@dataclass(frozen=True)
class Options:
    """The command line: ``host`` is None for plain HTTP on this machine only."""

    data: Path
    port: int
    host: str | None
    as_json: bool
    verbose: bool


def up(options: Options) -> None:
    """Run the stack until a signal asks it to stop.

    Raises:
        StackError: it can't start, with the reason and what to do.
    """
    os.umask(0o077)
    _allow_open_files()
    folder = DataFolder(options.data)
    folder.prepare()
    with folder.claim(), Signals().installed() as signals, contextlib.ExitStack() as cleanup:
        logs = ChildLogs(folder.logs, verbose=options.verbose)
        left = leftovers.end(folder.mark())
        if left:
            logs.note(f"Ended {left} processes that an earlier stack on this folder had left behind.")
        authority = Authority(folder.tls) if options.host is not None else None
        if authority is not None and options.host is not None:
            authority.certify(options.host)
        sockets = listen(options.port, everywhere=options.host is not None)
        database.prepare(settings.database_url(folder), folder.content)
        cleanup.callback(folder.forget_sockets)
        _Stack(options, folder, signals, logs, authority, sockets).run()


class _Stack:
    """The running stack: its programs, in the order in which they lean on each other."""

    def __init__(
        self,
        options: Options,
        folder: DataFolder,
        signals: Signals,
        logs: ChildLogs,
        authority: Authority | None,
        sockets: list[socket.socket],
    ) -> None:
        self._options = options
        self._folder = folder
        self._signals = signals
        self._authority = authority
        self._sockets = sockets
        self._port: int = sockets[0].getsockname()[1]
        self._logs = logs
        self._supervisor = Supervisor(logs.follow, logs.note)

    def run(self) -> None:
        try:
            if self._start():
                self._announce()
                self._watch()
                if not self._options.as_json:
                    self._logs.note("Stopping …")
        finally:
            for listener in self._sockets:
                listener.close()  # who connects from now on is refused at once, and doesn't wait in a queue for nobody
            self._supervisor.stop()

    def _start(self) -> bool:
        """Start everything; True once it serves, False when a stop was asked for meanwhile."""
        redis_socket = self._folder.socket("valkey.sock")
        ca_file = None if self._authority is None else self._authority.certificate_file
        environ = settings.surroundings(self._folder)
        self._supervisor.start(Program("valkey", valkey.command(redis_socket, self._folder.run), environ))
        if not self._wait_until(lambda: takes_connections(redis_socket), lambda: "valkey"):
            return False
        told = environ | settings.services(
            self._folder,
            redis_socket=str(redis_socket),
            url=self._url("127.0.0.1"),
            ca_file=None if ca_file is None else str(ca_file),
        )
        self._supervisor.start(Program("tasks", (sys.executable, "-m", "mingora_scheduler.tasks.worker"), told))
        self._supervisor.start(self._server(told))
        readiness = Readiness(self._port, told["REDIS_URL"], ca_file)
        return self._wait_until(readiness.look, readiness.missing)

    def _server(self, environ: dict[str, str]) -> Program:
        descriptors = tuple(listener.fileno() for listener in self._sockets)
        environ = environ | {settings.LISTEN_FDS: ",".join(map(str, descriptors))}
        if self._authority is not None:
            environ[settings.CERTIFICATE] = str(self._authority.server_file)
        return Program("server", (sys.executable, "-m", "mingora_stack.server"), environ, descriptors)

    def _wait_until(self, ready: Callable[[], bool], missing: Callable[[], str]) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while not self._signals.stopping:
            if ready():
                return True
            self._supervisor.step()
            name = missing()
            if time.monotonic() > deadline or self._supervisor.failures(name) >= HOPELESS_FAILURES:
                raise self._failure(f"{name} doesn't come up", name)
            self._signals.wait(LOOK_SECONDS)
        return False

    def _failure(self, what: str, name: str) -> StackError:
        return StackError(f"{what}. The end of {self._logs.path(name)}:\n{self._logs.tail(name)}")

    def _watch(self) -> None:
        checked = time.monotonic()
        while not self._signals.stopping:
            due = self._supervisor.step()
            if (name := self._supervisor.hopeless()) is not None:
                raise self._failure(f"{name} doesn't stay up", name)
            self._signals.wait(CERTIFICATE_CHECK_SECONDS if due is None else due)
            if time.monotonic() - checked >= CERTIFICATE_CHECK_SECONDS:
                checked = time.monotonic()
                self._renew_certificate()

    def _renew_certificate(self) -> None:
        """The server takes a new certificate with its next connection."""
        if self._authority is None or self._options.host is None:
            return
        try:
            if self._authority.certify(self._options.host):
                self._logs.note("The server's certificate was renewed.")
        except OSError as error:  # a full disk, say: there are weeks left to try again
            self._logs.note(f"The server's certificate can't be renewed: {error.strerror}.")

    def _url(self, host: str) -> str:
        scheme = "http" if self._authority is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"

    def _announce(self) -> None:
        """Say where it is and what comes next; people read it, or a program with ``--json``."""
        url = self._url(self._options.host or "127.0.0.1")
        ca_file = None if self._authority is None else self._authority.certificate_file
        if self._options.as_json:
            print(json.dumps({"url": url, "caFile": None if ca_file is None else str(ca_file)}), flush=True)
            return
        print(announcement(url, self._folder.path, ca_file), flush=True)


def _allow_open_files() -> None:
    """A waiting client is an open file, and so is a database connection: take what this user may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
