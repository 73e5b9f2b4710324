"""A real coordinator process for the benchmarks, and clients that send and fetch whole adapters."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from devtools.processes import Processes

HOST = "127.0.0.1"
START_SECONDS = 60
# Other work on the machine may hold it up for a moment: that isn't being idle.
IDLE_SECONDS, IDLE_READINGS = 0.2, 5
# More than a benchmark sends: the round stays open.
NEVER = 4000


@dataclass(frozen=True)
class Coordinator:
    """A running coordinator: its port, data folder and process."""

    port: int
    data: Path
    pid: int

    def get(self, path: str) -> Any:
        """The JSON answer of one request on a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection(HOST, self.port, timeout=60)) as connection:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def cpu(self) -> float:
        """Seconds of CPU so far, of all its processes."""
        found = psutil.Process(self.pid)
        times = [process.cpu_times() for process in (found, *found.children(recursive=True))]
        return sum(spent.user + spent.system for spent in times)

    def settle(self) -> float:
        """Wait until what it does in the background is done; its :meth:`cpu` then."""
        known = [self.cpu()]
        while len(known) < IDLE_READINGS or known[-1] > known[-IDLE_READINGS]:
            time.sleep(IDLE_SECONDS)
            known.append(self.cpu())
        return known[-1]


@contextlib.contextmanager
def coordinator(
    data: Path, initial: Path, processes: Processes, outer: str = "mean", min_results: int = NEVER
) -> Iterator[Coordinator]:
    """``mingora-coordinator serve`` until the block ends; it takes a training up that ``data`` has."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    with (data.with_name(f"{data.name}.log")).open("w") as log:
        child = processes.start(
            str(Path(sys.executable).with_name("mingora-coordinator")), "serve", "--data-dir", str(data),
            "--initial", str(initial), "--rounds", "1000", "--min-results", str(min_results), "--timeout", "0",
            "--outer", outer, "--port", str(port), env=_environment(), stdout=log, stderr=log,
        )  # fmt: skip
        found = Coordinator(port, data, child.pid)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                found.get("/bilgi")
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the coordinator didn't start: see {log.name}") from None
                time.sleep(0.05)
        try:
            yield found
        finally:
            child.terminate()
            child.wait()


def send(port: int, bodies: Sequence[bytes], number: int, clients: int) -> float:
    """Send ``bodies`` as results of round ``number`` over kept-alive connections; seconds until the last answer."""
    pending = list(bodies)

    def work() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        while pending:
            with contextlib.suppress(IndexError):
                connection.request("POST", f"/sonuc?isci={secrets.token_hex(8)}&tur={number}", pending.pop())
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"a result was refused: {answer.status} {text[:200]!r}")
        connection.close()

    return _at_once(work, clients)


def fetch(port: int, path: str, times: int, clients: int) -> float:
    """Fetch ``path`` over as many kept-alive connections, ``times`` each; seconds until the last byte."""

    def work() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        buffer = bytearray(1 << 20)
        for _ in range(times):
            connection.request("GET", path)
            answer = connection.getresponse()
            while answer.readinto(buffer):
                pass
        connection.close()

    return _at_once(work, clients)


def _at_once(work: Callable[[], None], clients: int) -> float:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    if failures:
        raise failures[0]
    return seconds


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("MINGORA_")}
