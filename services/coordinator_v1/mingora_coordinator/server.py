"""Serving: one gunicorn process with threads, which owns the data folder for as long as it lives."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mingora_common import logs, serving, tls
from mingora_common.clock import SystemClock
from mingora_common.proxies import Networks, parsed
from mingora_coordinator import example
from mingora_coordinator.app import create_app
from mingora_coordinator.domain.settings import Settings
from mingora_coordinator.store.adapter_file import Unusable, digest_of
from mingora_coordinator.store.folder import DataFolder, FolderError
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.training.opening import begin, resume
from mingora_coordinator.training.training import Training

# Besides those that every server keeps: many volunteers fetch the same new adapter at once, over slow lines.
MORE_THREADS = 384
MAX_CONNECTIONS = 4096
OTHER_FILES = 256
EXAMPLE = "example"
LOOPBACK = "127.0.0.1"
# A round that is being made is published before the process ends.
STOP_SECONDS = 30

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Serve:
    """What ``mingora-coordinator serve`` was told.

    Attributes:
        initial: the file that a new training starts with, ``example``, or None where one is taken up.
        certificate, certificate_key: PEM files, for TLS.
        proxies: the only ones that may connect, by plain HTTP, when any are named.
    """

    data: Path
    settings: Settings
    initial: str | None
    base_model: str
    host: str
    port: int
    key: str | None = field(default=None, repr=False)
    certificate: str | None = None
    certificate_key: str | None = None
    proxies: Networks = ()


class OnlyFrom:
    """WSGI middleware: behind a proxy, plain HTTP is the proxy's and this machine's alone."""

    def __init__(self, app: Wsgi, proxies: Networks) -> None:
        self._app = app
        self._proxies = proxies

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        peer = parsed(environ.get("REMOTE_ADDR", ""))
        if peer is not None and (peer.is_loopback or any(peer in network for network in self._proxies)):
            return self._app(environ, start_response)
        body = '{"hata": "bu adrese yalnızca vekil sunucu bağlanabilir"}\n'.encode()
        start_response("403 Forbidden", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def prepare(serve: Serve) -> None:
    """Begin the training unless the data folder has one; tell what is in the way of serving before it begins.

    Raises:
        FolderError, Unusable: with the fix.
    """
    folder = DataFolder(serve.data)
    folder.lock()
    try:
        _begin(folder, serve)
    finally:
        folder.unlock()


def run(serve: Serve) -> None:
    """Serve until SIGTERM. Raises ``ConfigError`` when the address can't be used."""
    _allow_files(serve.settings)
    listener = serving.Address(serve.host, serve.port, "--host, --port").bind()
    scheme, port = "https" if serve.certificate else "http", listener.getsockname()[1]
    print(f"{scheme}://{serve.host}:{port} serves the training in {serve.data}", flush=True)
    logs.configure("coordinator")
    running: list[Training] = []

    def build() -> serving.Served:
        folder = DataFolder(serve.data)
        folder.lock()
        clock = SystemClock()
        training = Training(folder, serve.settings, clock)
        running.append(training)
        app = create_app(training, Keys(folder.keys, serve.key), clock, serve.proxies)
        return serving.Served(OnlyFrom(app, serve.proxies) if serve.proxies else app)

    def ended(_server: object, _worker: object) -> None:
        for training in running:
            training.stop()

    chosen = serving.gunicorn_settings([listener.fileno()], MORE_THREADS)
    chosen |= {"worker_connections": MAX_CONNECTIONS, "worker_exit": ended, "graceful_timeout": STOP_SECONDS}
    if serve.certificate is not None:
        chosen |= tls.gunicorn_settings(serve.certificate, serve.certificate_key)
    serving.Server(build, chosen).run()


def _allow_files(settings: Settings) -> None:
    """Let the process have as many files open as a round's results and its connections may be.

    Raises:
        FolderError: the system doesn't let it.
    """
    wanted = settings.min_results + MAX_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < settings.min_results + OTHER_FILES:
        raise FolderError(
            f"This system lets a process have {hard} open files, and a round of {settings.min_results} results may "
            f"need {settings.min_results + OTHER_FILES}: raise the limit (ulimit -Hn), or lower --min-results"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _begin(folder: DataFolder, serve: Serve) -> None:
    numbers = folder.numbers()
    if numbers:
        _check_same(folder, serve.initial)
        resume(folder)
        return
    if serve.initial is None:
        raise FolderError(f"No training was begun in {serve.data}: name the adapter to start with by --initial FILE")
    initial = Path(serve.initial)
    made = folder.path / "example.safetensors"
    if serve.initial == EXAMPLE and not initial.exists():
        initial = made
        example.write(initial)
    try:
        begin(folder, initial, serve.base_model, SystemClock().now())
    except OSError as error:
        raise FolderError(f"The training can't be begun in {serve.data}: {os.strerror(error.errno or 0)}") from error
    finally:
        made.unlink(missing_ok=True)


def _check_same(folder: DataFolder, initial: str | None) -> None:
    """A file that isn't what the training began with is a mistake that should be noticed, not passed over."""
    if initial is None or initial == EXAMPLE or not Path(initial).is_file():
        return
    try:
        same = digest_of(Path(initial)) == folder.round(0).about()["digest"]
    except OSError as error:
        raise Unusable(f"{initial} can't be read: {error.strerror}") from error
    if not same:
        raise FolderError(
            f"The training in {folder.path} began with another adapter than {initial}: leave --initial out to go on "
            "with it, or name an empty --data-dir to begin anew"
        )
