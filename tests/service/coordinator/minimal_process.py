"""The minimal coordinator as a process of its own, without site-packages, and a client of a few lines."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from coordinator_bodies import Adapter
from safetensors.numpy import save

EXAMPLE = Path(__file__).parents[3] / "services" / "coordinator_v1" / "examples" / "minimal_coordinator.py"
PATIENCE = 60.0  # seconds, for a machine with much else to do


def adapter() -> Adapter:
    """A small adapter: two matrices that aren't square, and a vector."""
    return {
        "layers.0.lora_A.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        "layers.0.lora_B.weight": np.linspace(2, 3, 8, dtype=np.float32).reshape(4, 2),
        "layers.0.scale": np.ones(5, np.float32),
    }


class Minimal:
    """A minimal coordinator on a free port of 127.0.0.1; a context manager that ends it."""

    def __init__(self, folder: Path, rounds: int = 3, results: int = 2) -> None:
        initial = folder / "tur-0.safetensors"
        initial.write_bytes(save(adapter()))
        words = [sys.executable, "-I", "-S", str(EXAMPLE), "--baslangic", str(initial), "--port", "0"]
        with open(folder / "minimal.log", "wb") as log:
            self._process = subprocess.Popen(
                [*words, "--tur", str(rounds), "--en-az", str(results)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={"PYTHONIOENCODING": "utf-8", "PATH": os.environ["PATH"]},
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().split()[0]

    def __enter__(self) -> Minimal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def get(self, path: str, **parameters: object) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        return self._request("GET", path, parameters, None)

    def told(self, path: str, **parameters: object) -> Any:
        """The JSON of a GET that succeeds."""
        status, _, body = self.get(path, **parameters)
        assert status == 200, body
        return json.loads(body)

    def post(self, body: bytes, **parameters: object) -> tuple[int, Any]:
        """Status and JSON of a POST to /sonuc."""
        status, _, answer = self._request("POST", "/sonuc", parameters, body)
        return status, json.loads(answer)

    def connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        assert address.hostname is not None
        return http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)

    def _request(
        self, method: str, path: str, parameters: dict[str, object], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = self.connect()
        try:
            connection.request(method, f"{path}?{urlencode(parameters)}", body)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()
