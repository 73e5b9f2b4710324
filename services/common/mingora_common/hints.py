"""Hints to the task worker: short idempotent RQ tasks that carry only ids (and the request id, for the logs).

A hint that is lost costs a few seconds until the sweep; it never loses work. The names below are the whole list of
what may be enqueued, and the task worker runs nothing else.
"""

from __future__ import annotations

from typing import Protocol, cast

import redis
import structlog
from rq import Queue
from rq.serializers import JSONSerializer

from mingora_common import faults, logs, tally

QUEUE = "mingora"
PLACE = "mingora_scheduler.tasks.functions.place"
CANCEL = "mingora_scheduler.tasks.functions.cancel"
PURGE = "mingora_scheduler.tasks.functions.purge"
ARCHIVE_LOG = "mingora_scheduler.tasks.functions.archive_log"
PING = "mingora_scheduler.tasks.functions.ping"

# What the cron enqueues: each catches up on what a lost hint, a lost worker or a restart left behind.
SWEEP_EXPIRE = "mingora_scheduler.tasks.sweeps.expire"
SWEEP_PLACE = "mingora_scheduler.tasks.sweeps.place"
SWEEP_CANCEL = "mingora_scheduler.tasks.sweeps.cancel"
SWEEP_ARCHIVE = "mingora_scheduler.tasks.sweeps.archive"
SWEEP_PURGE = "mingora_scheduler.tasks.sweeps.purge"

TASKS = frozenset(
    {PLACE, CANCEL, PURGE, ARCHIVE_LOG, PING} | {SWEEP_EXPIRE, SWEEP_PLACE, SWEEP_CANCEL, SWEEP_ARCHIVE, SWEEP_PURGE}
)

# The same hint is sent once while it waits in the queue: a mark says so, which the task deletes before it reads.
MARK_SECONDS = 10
# More hints than that aren't kept: 10 MiB of Redis. Without a bound, a flood would fill it while no worker takes any
# out, and a full Redis gives nothing out either.
MAX_WAITING = 10_000

_log = structlog.get_logger()


class Hints(Protocol):
    """Where services leave hints. Call after the commit; nothing is raised when Redis is away."""

    def place(self, account_id: str) -> None:
        """There may be something to place for this account."""

    def cancel(self, job_id: str) -> None:
        """A cancel request for this job has been committed."""

    def purge(self, job_id: str) -> None:
        """This job has been deleted: its attempts, events and logs can go."""

    def archive_log(self, attempt_id: str) -> None:
        """This attempt has ended: its log chunks can be compressed."""

    def count(self, **counts: int) -> None:
        """So much has happened (``tally.py``)."""


def waiting_mark(task: str, argument: str) -> str:
    """The Redis key that marks a hint that waits in the queue."""
    return f"mingora:waiting:{task.rpartition('.')[2]}:{argument}"


def bound(client: redis.Redis, mark: str, seconds: int) -> None:
    """See to it that a mark that is there ends in time: one without an end, which isn't ours, would hold for ever."""
    left = cast(int, client.ttl(mark))  # -1: no end; -2: no mark
    if left == -1 or left > seconds:
        client.expire(mark, seconds)


class RedisHints:
    """Hints over RQ with JSON messages."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._queue = Queue(QUEUE, connection=client, serializer=JSONSerializer)

    def place(self, account_id: str) -> None:
        self._send(PLACE, account_id)

    def cancel(self, job_id: str) -> None:
        self._send(CANCEL, job_id)

    def purge(self, job_id: str) -> None:
        self._send(PURGE, job_id)

    def archive_log(self, attempt_id: str) -> None:
        self._send(ARCHIVE_LOG, attempt_id)

    def count(self, **counts: int) -> None:
        tally.add(self._client, counts)

    def _send(self, task: str, argument: str) -> None:
        mark = waiting_mark(task, argument)
        marked = False
        try:
            if self._queue.count >= MAX_WAITING:
                _log.warning("hint_lost", task=task, error="the queue is full")
                return
            marked = bool(self._client.set(mark, "1", nx=True, ex=MARK_SECONDS))
            if not marked:
                bound(self._client, mark, MARK_SECONDS)
            else:
                faults.point("hint.before")
                self._queue.enqueue(task, argument, meta=logs.trace(), result_ttl=0, failure_ttl=3600, job_timeout=60)
        except redis.RedisError as error:
            _log.warning("hint_lost", task=task, error=error.__class__.__name__)
            if marked:
                self._forget(mark)

    def _forget(self, mark: str) -> None:
        try:
            self._client.delete(mark)
        except redis.RedisError:
            _log.warning("hint_mark_left", seconds=MARK_SECONDS)
