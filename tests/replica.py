"""One replica of api and scheduler in a process of its own: does what it is told on stdin, one JSON list a line.

``python -m replica URL`` prints "ready" once it can begin. A command is ``[name, argument …]``, its answer one line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from argon2 import PasswordHasher
from scheduler_platform import V1, RecordedWaker
from support import RecordedHints, RecordedPins, bearer

import mingora_api.app
import mingora_api.config
import mingora_scheduler.app
import mingora_scheduler.config
from mingora_api.domain.passwords import Passwords
from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.db.engine import Database
from mingora_common.wake import Waiters
from mingora_scheduler.store import placement, sweeps

SPEC = {"schemaVersion": 1, "name": "race", "command": ["python", "main.py"]}


class Replica:
    """Both services over one database, as two processes of theirs would have it."""

    def __init__(self, url: str) -> None:
        clock, waiters, hints, pins = SystemClock(), Waiters(4), RecordedHints(), RecordedPins()
        waker = RecordedWaker(waiters)
        unused = ("redis://127.0.0.1:1", "k" * 32, "http://127.0.0.1:1")
        self.clock = clock
        self.database = Database(url, schema.SCHEDULER)
        self.api = mingora_api.app.create_app(
            mingora_api.config.Config(url, *unused), database=Database(url, schema.API), clock=clock, hints=hints,
            pins=pins, waker=waker, waiters=waiters, passwords=Passwords(PasswordHasher(1, 8, 1)),
        ).test_client()  # fmt: skip
        self.scheduler = mingora_scheduler.app.create_app(
            mingora_scheduler.config.Config(url, *unused), database=self.database, clock=clock, hints=hints, pins=pins,
            waker=waker, waiters=waiters,
        ).test_client()  # fmt: skip

    def submit(self, token: str, key: str) -> Any:
        headers = {**bearer(token), "Idempotency-Key": key}
        return self._told(self.api.post(f"{V1}/jobs", json={"spec": SPEC, "inputs": []}, headers=headers))

    def cancel(self, token: str, job_id: str) -> Any:
        return self._told(self.api.post(f"{V1}/jobs/{job_id}/cancel", headers=bearer(token)))

    def delete(self, token: str, job_id: str) -> Any:
        return self._told(self.api.delete(f"{V1}/jobs/{job_id}", headers=bearer(token)))

    def node(self, token: str, node_id: str, action: str, body: Any) -> Any:
        return self._told(self.scheduler.post(f"{V1}/nodes/{node_id}/{action}", json=body, headers=bearer(token)))

    def place(self, *account_ids: str) -> Any:
        return [len(placement.place(self.database, account, self.clock.now()).topics) for account in account_ids]

    def sweep(self, ahead: int) -> Any:
        """Expire, as it will be ``ahead`` milliseconds from now, and carry out cancels."""
        now = self.clock.now() + ahead
        sweeps.turn_back(self.database, self.clock.now())
        for attempt_id in sweeps.overdue(self.database, now):
            sweeps.expire(self.database, attempt_id, now)
        for job_id in sweeps.cancels_left(self.database):
            sweeps.cancel(self.database, job_id, now)
        return []

    def _told(self, answer: Any) -> Any:
        return [answer.status_code, answer.get_json(silent=True)]


def main() -> None:
    replica = Replica(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr  # logs don't come between
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(replica, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - the test sees it
            answer = ["error", f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
