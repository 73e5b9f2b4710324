"""The real worker as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.worker.fake_platform import FakePlatform

FOLDER = Path(__file__).parents[3] / "worker"
LAUNCHER = FOLDER / "mingora_worker.py"
CHANGED = """
import sys
sys.path[:0] = {folders}
{changed}
from mingora_worker.cli import run
sys.exit(run())
"""


class WorkerProcess:
    """`python mingora_worker.py …` in a clean environment; `events` fills while it runs.

    `own_code` False leaves --allow-own-code out; `changed`: Python that runs in its process before the worker begins.
    """

    def __init__(
        self,
        platform: FakePlatform,
        root: Path,
        home: Path,
        arguments: list[str],
        env: dict[str, str],
        *,
        own_code: bool = True,
        changed: str = "",
    ) -> None:
        self.root = root
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "MINGORA_URL": platform.url, **env}
        program = [str(LAUNCHER)]
        if changed:
            program = ["-c", CHANGED.format(folders=[str(FOLDER), str(FOLDER.parent / "cli")], changed=changed)]
        options = ["--root", str(root), "--json-logs", *(["--allow-own-code"] if own_code else []), *arguments]
        command = [sys.executable, *program, *options]
        self.process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, cwd=home)
        self.events: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self.other.append(line)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    def wait(self, timeout: float = 20.0) -> int:
        code = self.process.wait(timeout)
        self._reader.join(5)
        assert not any("Traceback" in line for line in self.other), "".join(self.other)
        return code

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            for _times in range(2):
                self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()


StartWorker = Callable[..., WorkerProcess]
