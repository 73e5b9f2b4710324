"""`dev.py demo`: one job from login to verified results on this machine, then everything is stopped and removed."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from devtools import venv
from devtools.processes import Processes

ACCOUNT = "demo"


class DemoError(Exception):
    """A step failed; its own output has been shown."""


def run() -> int:
    """Run the demo; 0 when the summary was computed, downloaded and verified."""
    try:
        python = venv.ensure("services")
    except venv.SetupError as error:
        _say(str(error))
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mingora-demo-") as folder, Processes() as processes:
        try:
            _Demo(processes, str(python), Path(folder)).play()
        except DemoError as error:
            _say(f"\nThe demo failed: {error}")
            return 1
        except KeyboardInterrupt:
            _say("\nInterrupted: stopping everything …")
            return 130
    _say(f"\nEverything is stopped and the temporary folder is removed. It took {time.monotonic() - started:.1f} s.")
    _say("Next: python3 dev.py up --data ./mingora-data   keeps a platform running; README.md goes on from there.")
    return 0


class _Demo:
    """The steps, in the order in which a user would take them."""

    def __init__(self, processes: Processes, python: str, folder: Path) -> None:
        self._processes = processes
        self._python = python
        self._folder = folder
        # The demo has a login file of its own: a user's real one is neither read nor changed.
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("MINGORA_")}
        self._env |= {"MINGORA_CONFIG": str(folder / "login.json"), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
        for name in ("MINGORA_LANG",):
            if name in os.environ:
                self._env[name] = os.environ[name]
        self._step = 0

    def play(self) -> None:
        project, results = self._folder / "summary", self._folder / "results"
        url = self._start_platform()
        self._next("Making an account and logging in")
        password = secrets.token_urlsafe(16)
        self._command("mingora_api.admin.cli", "--data", self._data, "account", "create", ACCOUNT,
                      "--password-stdin", stdin=password + "\n")  # fmt: skip
        self._command("mingora", "login", "--server", url, "--identifier", ACCOUNT, "--password-stdin",
                      stdin=password + "\n")  # fmt: skip
        self._next("Making a project from the template `summary`")
        self._command("mingora", "init", str(project), "--template", "summary")
        self._next("Submitting it")
        answer = self._command("mingora", "submit", str(project), "--key", "demo-1", "--json")
        job = json.loads(answer)["job"]["id"]
        _say(f"     {job}")
        self._next("Starting a worker, which claims and runs the job")
        self._processes.start(
            self._python, "-m", "mingora_worker", "--root", str(self._folder / "worker"), "--allow-own-code", "--once",
            env=self._env, stdout=sys.stderr.fileno(),
        )  # fmt: skip
        self._command("mingora", "wait", job, "--timeout", "60")
        self._next("The job's log, as the platform has it")
        _say(_indent(self._command("mingora", "logs", job)))
        self._next("Downloading the results and checking their SHA-256")
        self._command("mingora", "download", job, "--output", str(results))
        _say("")
        print((results / "summary.md").read_text(encoding="utf-8"), flush=True)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _start_platform(self) -> str:
        self._next("Starting the platform: api, blobstore, scheduler, tasks, and an embedded Valkey")
        stack = self._processes.start(
            self._python, "-m", "mingora_stack.cli", "up", "--data", self._data, "--port", "0", "--json",
            env=self._env, stdout=-1,
        )  # fmt: skip
        assert stack.stdout is not None
        line = stack.stdout.readline()
        if not line:
            raise DemoError("the platform didn't start")
        url = str(json.loads(line)["url"])
        _say(f"     {url}")
        return url

    def _command(self, module: str, *words: str, stdin: str | None = None) -> str:
        done = self._processes.run(self._python, "-m", module, *words, stdin=stdin, env=self._env, cwd=self._folder)
        if done.returncode != 0:
            raise DemoError(f"`{module} {words[0]}` ended with {done.returncode}")
        return done.stdout

    def _next(self, text: str) -> None:
        self._step += 1
        _say(f"{self._step}/7  {text}")


def _indent(text: str) -> str:
    return "\n".join("     " + line for line in text.splitlines())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
