"""A coordinator for tests: in this process behind Flask's test client, or as a process of its own."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from mingora_common.clock import Clock, SystemClock
from mingora_coordinator.app import create_app
from mingora_coordinator.domain.settings import Settings
from mingora_coordinator.store.folder import DataFolder
from mingora_coordinator.store.keys import Keys
from mingora_coordinator.training.opening import begin
from mingora_coordinator.training.training import Training

Adapter = dict[str, npt.NDArray[np.float32]]
PATIENCE = 60.0  # seconds, for a machine with much else to do
# Rounds close by count alone unless a test says otherwise.
NEVER = 0.0
TRANSFERS = 8


def adapter() -> Adapter:
    """A small adapter with LoRA's names: a row matrix, a column matrix and a vector."""
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    return {
        f"{module}.lora_A.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        f"{module}.lora_B.weight": np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3),
        "scale": np.ones(5, np.float32),
    }


def moved(start: Mapping[str, npt.NDArray[np.float32]], by: float) -> Adapter:
    """An adapter all of whose values are larger by ``by``."""
    return {name: (array + np.float32(by)).astype(np.float32) for name, array in start.items()}


class Local:
    """A training in ``folder`` and a client of its app, in this process; used in a ``with``."""

    def __init__(
        self,
        folder: Path,
        *,
        key: str | None = None,
        clock: Clock | None = None,
        initial: bytes | None = None,
        **chosen: Any,
    ) -> None:
        self.clock = clock or SystemClock()
        self.folder = DataFolder(folder / "data")
        self.folder.lock()
        try:
            if not self.folder.numbers():
                file = folder / "initial.safetensors"
                file.write_bytes(initial or save(adapter()))
                begin(self.folder, file, "org/base", self.clock.now())
            settings = Settings(**{"rounds": 4, "min_results": 2, "timeout": NEVER, **chosen})
            self.training = Training(self.folder, settings, self.clock)
        except BaseException:
            self.folder.unlock()
            raise
        self.keys = Keys(self.folder.keys, key)
        self.client = create_app(self.training, self.keys, self.clock, transfers=TRANSFERS).test_client()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_error: object) -> None:
        self.training.stop()
        self.folder.unlock()

    def send(self, worker: str, number: int, body: bytes | Adapter, **headers: str) -> tuple[int, dict[str, Any]]:
        """POST a result: status and JSON."""
        data = body if isinstance(body, bytes) else save(body)
        answer = self.client.post(f"/sonuc?{urlencode({'isci': worker, 'tur': number})}", data=data, headers=headers)
        return answer.status_code, answer.get_json()

    def get(self, path: str, **headers: str) -> Any:
        """The JSON of a GET that is answered 200."""
        answer = self.client.get(path, headers=headers)
        assert answer.status_code == 200, answer.get_data()
        return answer.get_json()

    def weights(self) -> tuple[int, str, Adapter]:
        """Round, digest and values of what is given out, which agree."""
        answer = self.client.get("/agirlik")
        digest = hashlib.sha256(answer.data).hexdigest()
        assert answer.headers["X-Sha256"] == digest
        return int(answer.headers["X-Tur"]), digest, load(answer.data)


class Served:
    """``mingora-coordinator serve`` as a process of its own, on a free port of 127.0.0.1."""

    def __init__(
        self, folder: Path, *words: str, rounds: int = 4, results: int = 2, initial: bytes | None = None
    ) -> None:
        self._initial = folder / "initial.safetensors"
        if not self._initial.exists():
            self._initial.write_bytes(initial or save(adapter()))
        self.data = folder / "data"
        self._log = folder / "coordinator.log"
        self._words = [
            *("serve", "--data-dir", str(self.data), "--baslangic", str(self._initial), "--port", "0"),
            *("--tur", str(rounds), "--en-az", str(results), "--zaman-asimi", "0", *words),
        ]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._log_file = self._log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mingora_coordinator", *self._words],
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line, self._log.read_text()
        self.url = line.split()[0]
        self._wait_until_ready()

    def kill(self) -> None:
        """SIGKILL to every process of it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self._ended()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: object,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; raises OSError or HTTPException when the connection breaks."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE)
        try:
            target = path + (f"?{urlencode(parameters)}" if parameters else "")
            connection.request(method, target, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def get(self, path: str, **parameters: object) -> Any:
        """The JSON of a GET that is answered 200."""
        status, _headers, body = self.request("GET", path, None, None, **parameters)
        assert status == 200, body
        return json.loads(body)

    def send(self, worker: str, number: int, body: bytes | Adapter) -> int:
        """POST a result: the status."""
        data = body if isinstance(body, bytes) else save(body)
        return self.request("POST", "/sonuc", data, isci=worker, tur=number)[0]

    def _ended(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log_file.close()
        return code

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                assert self.process.poll() is None, self._log.read_text()
                time.sleep(0.02)
        raise AssertionError(self._log.read_text())


def wait_for(condition: Any, seconds: float = PATIENCE) -> None:
    """Return once ``condition()`` is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def mean_of(adapters: Sequence[Mapping[str, npt.NDArray[np.float32]]]) -> Adapter:
    """Their plain mean, in float64."""
    return {
        name: np.mean([np.asarray(one[name], np.float64) for one in adapters], axis=0).astype(np.float32)
        for name in adapters[0]
    }
