"""Tells when the stack really serves: every service answers, and a task has made its way through the queue."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from pathlib import Path

import redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from mingora_common.hints import PING, QUEUE
from mingora_common.wake import connect

TIMEOUT_SECONDS = 3.0


class Readiness:
    """What has been seen to work so far. :meth:`look` costs little and is called again until it is true."""

    def __init__(self, port: int, redis_url: str, ca_file: Path | None) -> None:
        self._port = port
        self._client = connect(redis_url)
        self._context = None if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        self._task: Job | None = None
        self._task_done = False
        self._serving = False

    def look(self) -> bool:
        """Whether all is ready."""
        self._task_done = self._task_done or self._task_returned()
        self._serving = self._serving or self._answers()
        return self._task_done and self._serving

    def missing(self) -> str:
        """The program that isn't ready yet."""
        return "tasks" if self._serving else "server"

    def _task_returned(self) -> bool:
        try:
            if self._task is None:
                queue = Queue(QUEUE, connection=self._client, serializer=JSONSerializer)
                self._task = queue.enqueue(PING, result_ttl=60, job_timeout=30)
            return self._task.get_status() == JobStatus.FINISHED
        except redis.RedisError:
            self._task = None  # Valkey was restarted: the task is lost, the next look sends another
            return False

    def _answers(self) -> bool:
        if self._context is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=TIMEOUT_SECONDS, context=self._context
            )
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/readyz")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


def takes_connections(path: Path) -> bool:
    """Whether somebody listens on the Unix socket at ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
