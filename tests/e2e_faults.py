"""Killing processes at named points (mingora_common.faults, mingora.faults) while a user goes about their work."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from e2e_support import RunningStack, User, make_project, until

PROGRAM = """
import hashlib, os, sys
for number in range(200):
    print(f"line {number}")
os.makedirs("results/nested", exist_ok=True)
for name in ("data.bin", "empty"):
    with open(name, "rb") as source, open(f"results/nested/{name}", "wb") as target:
        target.write(source.read())
open("results/digest.txt", "w").write(hashlib.sha256(open("data.bin", "rb").read()).hexdigest())
"""
LOG = "".join(f"line {number}\n" for number in range(200)).encode()
PART = 2 << 20
# Long enough for a lease that nobody can keep any more to run out (60 s), in the worst case.
PATIENCE = 100.0


class Hunter(threading.Thread):
    """Has Valkey killed at each of some points: whichever Valkey runs by then."""

    def __init__(self, stack: RunningStack, faults: Faults, names: list[str]) -> None:
        super().__init__(name="hunter", daemon=True)
        self._stack = stack
        self._faults = faults
        self._names = names
        self._stopping = threading.Event()
        self.kills = 0

    def run(self) -> None:
        victim = self._valkey()
        for name in self._names:
            self._faults.arm(name, victim)
        while (valkey := self._valkey()) is not None:
            if valkey != victim:
                self.kills += 1
                victim = valkey
                for name in self._names:
                    if self._faults.armed(name):
                        self._faults.arm(name, victim)

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _valkey(self) -> int | None:
        """The process id of the Valkey that runs, waiting for it; None once the hunt is over."""
        while not self._stopping.wait(0.05):
            with contextlib.suppress(AssertionError, psutil.Error):
                return int(self._stack.process_of("valkey").pid)
        return None


class Keeper(threading.Thread):
    """Starts a user's worker, and starts it again whenever a test has killed it, as a service manager would."""

    def __init__(self, user: User) -> None:
        super().__init__(name="keeper", daemon=True)
        self._user = user
        self._stopping = threading.Event()
        self.ends: list[int] = []

    def run(self) -> None:
        self._worker = self._user.worker()
        while not self._stopping.wait(0.05):
            if self._worker.poll() is not None:
                self.ends.append(self._worker.returncode)
                self._worker = self._user.worker()

    def renew(self) -> None:
        """Kill the worker that runs: the next one passes every point anew."""
        self._worker.kill()

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join()


class Faults:
    """The folder in which points are armed and recorded."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.env = {"MINGORA_TEST_FAULTS": str(folder), "MINGORA_TESTING": "1"}

    def arm(self, name: str, victim: int | None = None) -> None:
        """Kill whoever passes the point next, or ``victim``."""
        (self._folder / name).write_text("" if victim is None else str(victim))

    def armed(self, name: str) -> bool:
        return (self._folder / name).exists()

    def left(self) -> set[str]:
        """What was armed and not passed; none of it is armed any more."""
        left = {path.name for path in self._folder.iterdir()}
        for name in left:
            (self._folder / name).unlink(missing_ok=True)
        return left

    @contextlib.contextmanager
    def recording(self) -> Any:
        """Collects the names of the points passed inside the block, in order of first passing."""
        names: list[str] = []
        (self._folder / "record").touch()
        yield names
        names += dict.fromkeys((self._folder / "record").read_text().split("\n")[:-1])
        (self._folder / "record").unlink()


def insist(user: User, *words: str, ends: tuple[int, ...] = (0,)) -> bytes:
    """Type the command again until it ends as it should: what a person does when it was interrupted."""
    deadline = time.monotonic() + PATIENCE
    while True:
        process = user.start(*words)
        output, errors = process.communicate(timeout=PATIENCE)
        if process.returncode in ends:
            return output
        assert time.monotonic() < deadline, f"{words}: {process.returncode} {errors.decode()}"
        time.sleep(0.2)


def play(user: User, folder: Path) -> None:
    """Submit, follow, download, cancel, delete, log in; checks that every acknowledged thing is there, once."""
    data = secrets.token_bytes(PART + 1000)
    retry = {"max": 5}
    project = make_project(folder / "project", ["python", "main.py"], {"main.py": PROGRAM, "empty": ""}, retry=retry)
    (project / "data.bin").write_bytes(data)
    key = secrets.token_hex(8)
    job_id = json.loads(insist(user, "submit", str(project), "--key", key, "--json"))["job"]["id"]
    insist(user, "wait", job_id, "--timeout", "90")
    assert json.loads(insist(user, "submit", str(project), "--key", key, "--json"))["job"]["id"] == job_id
    insist(user, "download", job_id, "--output", str(folder / "out"))
    assert (folder / "out" / "nested" / "data.bin").read_bytes() == data
    assert (folder / "out" / "nested" / "empty").read_bytes() == b""
    assert (folder / "out" / "digest.txt").read_text() == hashlib.sha256(data).hexdigest()
    assert sorted(path.name for path in (folder / "out").rglob("*") if path.is_file()) == [
        "data.bin", "digest.txt", "empty"
    ]  # fmt: skip
    assert insist(user, "logs", job_id) == LOG
    _one_committed_attempt(insist(user, "events", job_id, "--json"))

    waiting = make_project(folder / "waiting", ["sleep", "600"], retry=retry)
    second = json.loads(insist(user, "submit", str(waiting), "--key", secrets.token_hex(8), "--json"))["job"]["id"]
    until(lambda: _state(user, second) == "running", PATIENCE, "the second job runs")
    insist(user, "cancel", second)
    insist(user, "wait", second, "--timeout", "90", ends=(103,))
    for each in (job_id, second):
        insist(user, "rm", each, ends=(0, 4))
    left = {job["id"] for job in json.loads(insist(user, "status", "--json"))["jobs"]}
    assert not left & {job_id, second}


def _state(user: User, job_id: str) -> str:
    return str(json.loads(insist(user, "status", job_id, "--json"))["job"]["state"])


def _one_committed_attempt(output: bytes) -> None:
    events = [json.loads(line)["event"] for line in output.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    finished = [event["data"]["state"] for event in events if event["type"] == "attempt.finished"]
    assert Counter(finished)["succeeded"] == 1
    assert finished[-1] == "succeeded"


def at_rest(stack: RunningStack) -> None:
    """Nothing lives on that shouldn't, and the accounts add up."""
    with contextlib.closing(sqlite3.connect(stack.folder.platform, timeout=10)) as platform:

        def rows(query: str) -> list[Any]:
            return platform.execute(query).fetchall()

        assert rows("SELECT id FROM leases WHERE ended_at IS NULL") == []
        assert rows("SELECT id FROM attempts WHERE ended_at IS NULL") == []
        held = "SELECT account_id, SUM(size), COUNT(*) FROM objects WHERE state <> 'corrupt' GROUP BY account_id"
        used = "SELECT account_id, bytes, files FROM blob_usage WHERE files > 0"
        assert sorted(rows(held)) == sorted(rows(used))
        assert rows("SELECT 1 FROM pins p LEFT JOIN objects o ON o.id = p.object_id WHERE o.id IS NULL") == []
        whole = """SELECT o.id FROM objects o LEFT JOIN parts p ON p.object_id = o.id WHERE o.state = 'complete'
                   GROUP BY o.id, o.size HAVING COALESCE(SUM(p.size), 0) <> o.size"""
        assert rows(whole) == []
