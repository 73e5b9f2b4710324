"""The command ``mingora-scheduler-tasks``: one RQ worker and the cron beside it, in one process.

RQ's worker would import and run any dotted name that stands in Redis. This one runs the functions of
``mingora_common.hints.TASKS`` and nothing else, takes no commands over pub/sub, and comes back whenever Redis does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import redis
import structlog
from rq import Queue, SimpleWorker
from rq.exceptions import DeserializationError, StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import import_attribute
from rq.worker import WorkerStatus

from mingora_common import faults, logs, startup, tally
from mingora_common.clock import SystemClock
from mingora_common.config import ConfigError
from mingora_common.db.engine import Database
from mingora_common.db.schema import SCHEDULER
from mingora_common.hints import QUEUE, TASKS, RedisHints
from mingora_common.wake import RedisWaker, connect
from mingora_scheduler.config import TaskConfig
from mingora_scheduler.store.figures import DONE, ENDED_BADLY, SWEPT, TASK
from mingora_scheduler.tasks.context import Context, configure
from mingora_scheduler.tasks.cron import CronThread
from mingora_scheduler.tasks.keys import set_right

RESTART_SECONDS = 0.5
# RQ blocks on its queue for this long less 15 s: how soon it notices a connection that died without a word.
WORKER_TTL_SECONDS = 45
SERVICE = "scheduler-tasks"
_SWEEPS = "sweeps."

_log = structlog.get_logger()


class TaskRefused(Exception):
    """A message in the queue names something that isn't a task."""


class TaskJob(Job):
    """A message from the queue. Whatever it says, only a listed function is found, and nothing else is called."""

    @property
    def func(self) -> Callable[..., Any]:
        if self.func_name not in TASKS or self.instance is not None or self.kwargs:
            _log.error("task_refused", job=self.id)
            raise TaskRefused
        return import_attribute(self.func_name)

    def restore(self, raw_data: Any) -> None:
        """As RQ's, without trying again or repeating: a task that failed is caught up with by a sweep."""
        super().restore(raw_data)
        self.retries_left = self.retry_intervals = self.repeats_left = self.repeat_intervals = None

    def perform(self) -> Any:
        faults.entered(f"tasks.{str(self.func_name).rpartition('.')[2]}")
        result = super().perform()
        faults.point("done")
        return result

    @property
    def success_callback(self) -> Callable[..., Any]:
        return _nothing

    @property
    def failure_callback(self) -> Callable[..., Any]:
        return _nothing

    @property
    def stopped_callback(self) -> None:
        return None

    def send_webhooks(self, *_args: Any, **_kwargs: Any) -> None:
        """Messages call no addresses."""


class TaskWorker(SimpleWorker):
    """RQ's worker without forks, remote commands and signal handlers of its own."""

    max_connection_wait_time = 1.0

    def __init__(self, client: redis.Redis, alive_file: str | None) -> None:
        self._alive_file = alive_file
        queue = Queue(QUEUE, connection=client, serializer=JSONSerializer, job_class=TaskJob)
        super().__init__(
            [queue], connection=client, serializer=JSONSerializer, job_class=TaskJob, worker_ttl=WORKER_TTL_SECONDS
        )

    def perform_job(self, job: Job, queue: Queue, execution: Execution) -> bool:
        """As RQ's; a task that was done shows that Redis, the database and this worker all do their part."""
        task = _task_of(job)
        logs.begin(logs.traced(job.meta), service=SERVICE, task=task)
        started = time.monotonic()
        done = bool(super().perform_job(job, queue, execution))
        sweep = task.startswith(_SWEEPS)
        # Several sweeps a second that found nothing to do would drown the log.
        say = _log.debug if sweep and done else _log.info
        say("task", outcome=DONE if done else ENDED_BADLY, seconds=round(time.monotonic() - started, 4))
        swept = {f"{SWEPT}:{task.removeprefix(_SWEEPS)}": SystemClock().now()} if sweep and done else {}
        tally.add(self.connection, {f"{TASK}:{task}:{DONE if done else ENDED_BADLY}": 1}, swept)
        if done and self._alive_file is not None:
            Path(self._alive_file).touch()
        return done

    def subscribe(self) -> None:
        """Commands over pub/sub (shut down, stop a job) aren't taken."""

    def unsubscribe(self) -> None:
        """Nothing was subscribed to."""

    def _install_signal_handlers(self) -> None:
        """Signals are :class:`Tasks`'."""

    def finish(self) -> None:
        """End after the task at hand, or at once when idle."""
        if self.get_state() != WorkerStatus.BUSY:
            raise StopRequested
        self._stop_requested = True


class Tasks:
    """Works until told to stop, through any number of lost connections."""

    def __init__(self, redis_url: str, alive_file: str | None = None) -> None:
        self._redis_url = redis_url
        self._alive_file = alive_file
        self._stopping = threading.Event()
        self._worker: TaskWorker | None = None

    def serve(self) -> None:
        """Run cron and worker; returns after SIGTERM or SIGINT."""
        cron = CronThread(self._redis_url)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        cron.start()
        try:
            while not self._stopping.is_set():
                self._work()
                self._stopping.wait(RESTART_SECONDS)
        except StopRequested:
            _log.info("stopped")
        finally:
            cron.stop()

    def _work(self) -> None:
        try:
            with connect(self._redis_url, blocking=True) as client:
                set_right(client)
                self._worker = TaskWorker(client, self._alive_file)
                self._worker.work(logging_level="WARNING")
        except StopRequested:
            raise
        except Exception as error:  # noqa: BLE001 - whatever somebody left in Redis, the next task may be a good one
            _log.warning("worker_lost", error=error.__class__.__name__)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        if self._worker is None:
            raise StopRequested
        self._worker.finish()


def run() -> None:
    """The entry point; settings come from the environment."""
    try:
        config = startup.checked(TaskConfig.from_env, os.environ)
    except ConfigError as error:
        sys.exit(f"mingora-scheduler-tasks: {error}")
    logs.configure(SERVICE)
    client = connect(config.redis_url)
    configure(
        Context(Database(config.database_url, SCHEDULER), SystemClock(), RedisHints(client), RedisWaker(client), client)
    )
    Tasks(config.redis_url, config.alive_file).serve()


def _task_of(job: Job) -> str:
    """The name that a task has in logs and figures: ``place``, ``sweeps.place``; one for all that isn't a task."""
    try:
        name = str(job.func_name)
    except DeserializationError:
        name = ""
    module, _, function = name.rpartition(".")
    if name not in TASKS:
        return "other"
    return f"{_SWEEPS}{function}" if module.endswith(".sweeps") else function


def _nothing(*_args: Any) -> None:
    return None


if __name__ == "__main__":
    run()
