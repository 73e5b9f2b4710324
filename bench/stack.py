"""A real embedded stack with one account, for the benchmarks; and small statistics."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devtools.processes import Processes


@dataclass
class Platform:
    """A running stack, logged in: run the CLI with :meth:`mingora`."""

    url: str
    folder: Path
    env: dict[str, str]
    supervisor: int
    seconds_to_start: float
    processes: Processes

    def mingora(self, *words: str) -> str:
        """The CLI's standard output; raises when it fails."""
        command = [sys.executable, "-m", "mingora", *words]
        return subprocess.run(
            command, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout

    def admin(self, *words: str) -> None:
        """Run mingora-admin on this stack's data."""
        command = [sys.executable, "-m", "mingora_api.admin.cli", "--data", str(self.folder / "data"), *words]
        subprocess.run(command, env=self.env, check=True, stdout=subprocess.DEVNULL)

    def worker(self, env: dict[str, str] | None = None) -> None:
        """Start a worker (in the CLI's environment unless told another) and wait until it asks for work."""
        log = (self.folder / "worker.log").open("w")
        self.processes.start(
            sys.executable, "-m", "mingora_worker", "--root", str(self.folder / "worker"), "--allow-own-code",
            env=env or self.env, stdout=log, stderr=log,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            nodes = json.loads(self.mingora("nodes", "--json"))["nodes"]
            if any(node["state"] == "idle" for node in nodes):
                return
            time.sleep(0.2)
        raise RuntimeError("the worker didn't register")

    def token(self) -> str:
        """The account's user token."""
        login = json.loads((self.folder / "login.json").read_text())
        return str(login["token"])


@contextlib.contextmanager
def platform() -> Iterator[Platform]:
    """Start a stack in a temporary folder, make an account without tight limits, log in; stop it all at the end."""
    with tempfile.TemporaryDirectory(prefix="mingora-bench-") as name, Processes() as processes:
        folder = Path(name)
        env = {key: value for key, value in os.environ.items() if not key.startswith("MINGORA_")}
        env["MINGORA_CONFIG"] = str(folder / "login.json")
        started = time.monotonic()
        stack = processes.start(
            sys.executable, "-m", "mingora_stack.cli", "up", "--data", str(folder / "data"), "--port", "0", "--json",
            env=env, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert stack.stdout is not None
        url = json.loads(stack.stdout.readline())["url"]
        found = Platform(url, folder, env, stack.pid, time.monotonic() - started, processes)
        password = secrets.token_urlsafe(16) + "\n"
        admin = [sys.executable, "-m", "mingora_api.admin.cli", "--data", str(folder / "data"), "account", "create"]
        quiet = {"env": env, "text": True, "stdout": subprocess.DEVNULL, "check": True}
        subprocess.run([*admin, "bench", "--password-stdin"], input=password, **quiet)  # type: ignore[call-overload]
        login = [sys.executable, "-m", "mingora", "login", "--server", url, "--identifier", "bench", "--password-stdin"]
        subprocess.run(login, input=password, **quiet)  # type: ignore[call-overload]
        wide = ("--max-bytes", str(1 << 30), "--max-files", "20000", "--max-jobs", "20000")
        found.admin("account", "limits", "bench", *wide)
        yield found


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
