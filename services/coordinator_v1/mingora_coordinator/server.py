"""Serving: one gunicorn process with threads, which owns the data folder for as long as it lives."""

from __future__ import annotations

import os
import resource
import signal
import ssl
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
# Of all threads, those that transfers leave alone.
FREE_THREADS = 64
TRANSFERS = MORE_THREADS + serving.RESERVE_THREADS - FREE_THREADS
MAX_CONNECTIONS = 4096
LEAST_CONNECTIONS = 64
OTHER_FILES = 64
# A worker whose master was killed notices it within a second or two.
LOCK_PATIENCE = 10.0
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


class Worker(serving.ServiceWorker):
    """What can't be read as a request is told in the protocol's form."""

    error_body = staticmethod(lambda status: {"hata": "istek okunamadı" if status < 500 else "iç hata"})


def prepare(serve: Serve) -> None:
    """Begin the training unless the data folder has one; tell what is in the way of serving before it begins.

    Raises:
        FolderError, Unusable: with the fix.
    """
    if serve.certificate is not None:
        _check_certificate(serve.certificate, serve.certificate_key)
    folder = DataFolder(serve.data)
    folder.lock(patience=LOCK_PATIENCE)
    try:
        _begin(folder, serve)
    finally:
        folder.unlock()


def run(serve: Serve) -> None:
    """Serve until SIGTERM. Raises ``ConfigError`` when the address can't be used."""
    connections = _allow_files(serve.settings)
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
        app = create_app(training, Keys(folder.keys, serve.key), clock, transfers=TRANSFERS, trusted=serve.proxies)
        return serving.Served(OnlyFrom(app, serve.proxies) if serve.proxies else app)

    def ended(_server: object, _worker: object) -> None:
        for training in running:
            training.stop()

    chosen = serving.gunicorn_settings([listener.fileno()], MORE_THREADS)
    chosen |= {"worker_class": Worker, "worker_connections": connections, "graceful_timeout": STOP_SECONDS}
    chosen |= {"when_ready": _ignore_signals, "worker_exit": ended}
    if serve.certificate is not None:
        chosen |= tls.gunicorn_settings(serve.certificate, serve.certificate_key)
    serving.Server(build, chosen).run()


def _allow_files(settings: Settings) -> int:
    """Let the process have as many files open as a round's results, its connections and what these write may be.

    Returns: how many connections there may be.

    Raises:
        FolderError: the system doesn't let it have enough.
    """
    kept = settings.min_results + MORE_THREADS + serving.RESERVE_THREADS + OTHER_FILES
    wanted = kept + MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed - kept < LEAST_CONNECTIONS:
        raise FolderError(
            f"This system lets a process have {hard} open files, and a round of {settings.min_results} results needs "
            f"{kept + LEAST_CONNECTIONS}: raise the limit (ulimit -Hn), or lower --min-results"
        )
    return allowed - kept


def _check_certificate(certificate: str, key: str | None) -> None:
    """Raise FolderError when these files make no TLS server; otherwise each client would learn it."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        files = certificate if key is None else f"{certificate} and {key}"
        raise FolderError(
            f"{files} make no TLS server ({error.__class__.__name__}): a PEM certificate with its chain is needed, and "
            "its key without a password, in the same file or by --tls-key"
        ) from error


def _no_password() -> str:
    raise ValueError("the key has a password")


def _ignore_signals(_server: object) -> None:
    """gunicorn would start a second worker by these, and only one may have the data folder. A terminal that is closed
    ends the coordinator as SIGTERM does."""
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, lambda _number, _frame: os.kill(os.getpid(), signal.SIGTERM))


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
    try:
        if serve.initial == EXAMPLE and not initial.exists():
            initial = made
            example.write(initial)
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
