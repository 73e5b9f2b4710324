"""RQ's cron for the JSON queue, supervised: RQ's own enqueues pickles, and ends with the first lost connection."""

from __future__ import annotations

import threading
from typing import Any

import redis
import structlog
from rq import Queue
from rq.cron import CronJob, CronScheduler
from rq.exceptions import StopRequested
from rq.serializers import JSONSerializer

from mingora_common.hints import QUEUE, bound
from mingora_common.wake import connect
from mingora_scheduler.tasks.keys import set_right
from mingora_scheduler.tasks.sweeps import SECONDS_BETWEEN, sweep_mark

# How long a sweep that never ran (its worker was killed) keeps the next one from being enqueued.
MARK_SECONDS = 30
RESTART_SECONDS = 0.5
LONGEST_SLEEP = 1.0

_log = structlog.get_logger()


class Sweep(CronJob):
    """A sweep by name, enqueued as JSON unless one of the name waits already."""

    def enqueue(self, connection: redis.Redis) -> Any:
        mark = sweep_mark(self.func_name)
        if not connection.set(mark, "1", nx=True, ex=MARK_SECONDS):
            bound(connection, mark, MARK_SECONDS)
            return None
        queue = Queue(self.queue_name, connection=connection, serializer=JSONSerializer)
        return queue.enqueue(self.func_name, result_ttl=0, failure_ttl=3600, job_timeout=60)


class Cron(CronScheduler):
    """Runs in a thread, so it takes no signals; ends when told to."""

    def __init__(self, connection: redis.Redis, stopping: threading.Event) -> None:
        super().__init__(connection)
        self._stopping = stopping
        for name, seconds in SECONDS_BETWEEN.items():
            self._cron_jobs.append(Sweep(QUEUE, func_name=name, interval=seconds))

    def _install_signal_handlers(self) -> None:
        """Signals are the main thread's."""

    def heartbeat(self) -> None:
        if self._stopping.is_set():
            raise StopRequested
        super().heartbeat()

    def calculate_sleep_interval(self) -> float:
        return min(super().calculate_sleep_interval(), LONGEST_SLEEP)


class CronThread(threading.Thread):
    """Keeps a cron running for as long as the process lives."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(name="cron", daemon=True)
        self._redis_url = redis_url
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with connect(self._redis_url) as client:
                    set_right(client)
                    Cron(client, self._stopping).start()  # type: ignore[no-untyped-call]
            except Exception as error:  # noqa: BLE001 - whatever ends a cron, the sweeps must go on
                _log.warning("cron_lost", error=error.__class__.__name__)
                self._stopping.wait(RESTART_SECONDS)

    def stop(self) -> None:
        self._stopping.set()
