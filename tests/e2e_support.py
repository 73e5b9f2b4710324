"""Real processes for end-to-end tests: the embedded stack, and users with the command line and workers of their own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from mingora_stack import leftovers
from mingora_stack.folder import DataFolder

REPOSITORY = Path(__file__).parent.parent
MINGORA = (sys.executable, str(REPOSITORY / "cli" / "mingora.py"))
WORKER = (sys.executable, str(REPOSITORY / "worker" / "mingora_worker.py"))
PASSWORD = "a long enough password"


def until(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Look every 50 ms until ``true``; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def prompt(seconds: float) -> float:
    """``seconds`` on a calm machine, four times that while it has more to do than it can."""
    return seconds if os.getloadavg()[0] < (os.cpu_count() or 1) else 4 * seconds


def environment(**more: str) -> dict[str, str]:
    """This process's environment without anybody's Mingora settings, in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MINGORA_")}
    return kept | {"MINGORA_LANG": "en", "PYTHONUNBUFFERED": "1"} | more


class Served(Protocol):
    """What a user needs of a platform, however it runs."""

    url: str
    ca_file: str | None

    def admin(self, *words: str, stdin: str = "") -> object: ...


class RunningStack:
    """``mingora-stack up`` on a folder of its own; a restart takes the same port."""

    def __init__(self, data: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.folder = DataFolder(data)
        self.url = ""
        self.ca_file: str | None = None
        self._options = options
        self._env = dict(env or {})
        self._port = "0"
        self.process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        words = ["up", "--data", str(self.data), "--port", self._port, "--json", *self._options]
        return [sys.executable, "-m", "mingora_stack.cli", *words]

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        self.close()
        self.process = subprocess.Popen(self.command(), env=environment(**self._env), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the stack ended with {self.process.wait()}"
        said = json.loads(line)
        self.url, self.ca_file = said["url"], said["caFile"]
        self._port = self.url.rpartition(":")[2]

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> None:
        """SIGKILL to the supervisor."""
        assert self.process is not None
        self.process.kill()
        self._ended()

    def close(self) -> None:
        """End all that is left of it, however the test went."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self._ended()
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        if self.folder.run.is_dir():
            leftovers.end(self.folder.mark())

    def check_faults(self) -> None:
        """Fail when a service answered with an error of its own while tests ran."""
        lines = (self.folder.logs / "server.log").read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if '"internal_error"' in line] == []

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to it, apart from the supervisor."""
        return leftovers.marked(self.folder.mark())

    def roles(self) -> list[str]:
        """What its processes are, in alphabetical order."""
        return sorted(_role(process) or repr(process) for process in self.processes())

    def process_of(self, role: str) -> psutil.Process:
        """The process of ``valkey``, ``tasks``, ``server`` (gunicorn's master) or ``server worker``."""
        found = [process for process in self.processes() if _role(process) == role]
        assert found, f"no process is the {role}"
        return found[0]

    def admin(self, *words: str, stdin: str = "") -> None:
        command = [sys.executable, "-m", "mingora_api.admin.cli", "--data", str(self.data), *words]
        done = subprocess.run(command, env=environment(), input=stdin, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr

    def _ended(self) -> int:
        assert self.process is not None
        return self.process.wait(60)


def _role(process: psutil.Process) -> str | None:
    try:
        words, parent = process.cmdline(), process.parent()
        if words and words[0].endswith("valkey-server"):
            return "valkey"
        if words[-2:] == ["-m", "mingora_scheduler.tasks.worker"]:
            return "tasks"
        if words[-2:] == ["-m", "mingora_stack.server"]:
            return "server worker" if parent is not None and parent.cmdline() == words else "server"
    except psutil.Error:
        pass
    return None


class User:
    """An account on a stack, logged in on a machine of its own (a home folder under ``home``)."""

    def __init__(self, stack: Served, home: Path, name: str | None = None) -> None:
        self.stack = stack
        self.home = home
        self.name = name or f"user-{secrets.token_hex(6)}"
        self.workers: list[subprocess.Popen[bytes]] = []
        home.mkdir(parents=True, exist_ok=True)
        self.env = environment(HOME=str(home), MINGORA_CONFIG=str(home / "login.json"))

    def create(self) -> User:
        self.stack.admin("account", "create", self.name, "--password-stdin", stdin=PASSWORD + "\n")
        return self

    def login(self) -> User:
        trust = [] if self.stack.ca_file is None else ["--ca-file", self.stack.ca_file]
        self.run("login", "--server", self.stack.url, "--identifier", self.name, "--password-stdin", *trust,
                 stdin=PASSWORD.encode() + b"\n")  # fmt: skip
        return self

    def login_record(self) -> dict[str, Any]:
        """The stored login: server and token among others."""
        return dict(json.loads((self.home / "login.json").read_text()))

    def elsewhere(self, home: Path) -> User:
        """The same account on another machine, not logged in yet."""
        return User(self.stack, home, self.name)

    def run(self, *words: str, status: int = 0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """``mingora WORDS``, which must end with ``status``."""
        command = [*MINGORA, *words]
        done = subprocess.run(command, env=self.env, input=stdin, capture_output=True, cwd=self.home, timeout=110)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done

    def json(self, *words: str, status: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", status=status).stdout)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """``mingora WORDS`` in the background; the caller ends it."""
        command = [*MINGORA, *words]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.home)

    def submit(self, project: Path, key: str | None = None) -> str:
        """Submit a folder; the job's id."""
        words = ["submit", str(project), "--key", key or secrets.token_hex(8)]
        return str(self.json(*words)["job"]["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.json("status", job_id)["job"])

    def wait_for_state(self, job_id: str, *states: str, seconds: float = 60) -> dict[str, Any]:
        until(lambda: self.job(job_id)["state"] in states, seconds, f"{job_id} is {' or '.join(states)}")
        return self.job(job_id)

    def worker(self, *options: str, root: str = "worker") -> subprocess.Popen[bytes]:
        """Start a worker of this user; :meth:`close` ends it."""
        command = [*WORKER, "--root", str(self.home / root), "--allow-own-code"]
        with open(self.home / f"{root}.log", "ab") as log:
            process = subprocess.Popen(
                [*command, "--json-logs", *options], env=self.env, cwd=self.home, stdout=log, stderr=log
            )
        self.workers.append(process)
        return process

    def work_once(self) -> None:
        """Run a worker for one job, to its end."""
        worker = self.worker("--once")
        assert worker.wait(90) == 0, (self.home / "worker.log").read_text()

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def make_project(folder: Path, command: Sequence[str], files: dict[str, str] | None = None, **spec: Any) -> Path:
    """A project with this command and these files."""
    folder.mkdir(parents=True)
    job = {"schemaVersion": 1, "name": folder.name, "command": list(command), **spec}
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    for path, text in (files or {}).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def python_project(folder: Path, code: str, *arguments: str, **spec: Any) -> Path:
    """A project that runs ``code`` as main.py with the tests' own Python."""
    return make_project(folder, [sys.executable, "main.py", *arguments], {"main.py": code}, **spec)
