"""What somebody who can write to Redis may leave there: refused, logged, and the task worker goes on."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from rq import Queue
from rq.serializers import JSONSerializer
from service.scheduler.test_scheduler_redis import Valkey, answer_ping, start_tasks, until

from mingora_common import hints
from mingora_common.hints import RedisHints, waiting_mark
from mingora_common.wake import CHANNEL, Listener, Waiters, connect
from mingora_scheduler.tasks.sweeps import SECONDS_BETWEEN, sweep_mark

pytestmark = pytest.mark.engine("redis")
GARBAGE = (b"", b"\xff\xfe", b"-1", b"{", b"x" * 100_000)
FIELDS = (
    *("created_at", "enqueued_at", "started_at", "status", "origin", "description", "timeout", "result_ttl", "ttl"),
    *("failure_ttl", "retries_left", "retry_intervals", "meta", "worker_name", "dependency_ids", "group_id", "data"),
    *("success_callback_name", "failure_callback_name", "stopped_callback_name", "number_of_retries", "repeats_left"),
    *("repeat_intervals", "enqueue_at_front", "allow_dependency_failures", "webhooks", "last_heartbeat", "exc_info"),
)


@pytest.fixture
def server() -> Iterator[Valkey]:
    folder = Path(tempfile.mkdtemp(prefix="mg"))
    server = Valkey(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@pytest.fixture
def client(server: Valkey) -> Iterator[Any]:
    with connect(server.url) as client:
        yield client


@pytest.fixture
def queue(client: Any) -> Queue:
    return Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)


@pytest.fixture
def worker(sqlite_url: str, server: Valkey) -> Iterator[subprocess.Popen[bytes]]:
    process = start_tasks(sqlite_url, server.url)
    yield process
    process.kill()
    process.wait()


@pytest.mark.req("JOB-9")
def test_a_message_with_a_forged_field_is_survived(
    server: Valkey, client: Any, queue: Queue, worker: Any
) -> None:  # fmt: skip
    for field in FIELDS:
        for value in GARBAGE:
            message = queue.create_job(hints.PING, failure_ttl=60)
            message.save()
            client.hset(message.key, field, value)
            client.lpush(queue.key, message.id)
        until(lambda: client.llen(queue.key) == 0, 30)
    answer_ping(server.url)
    assert worker.poll() is None
    until(lambda: client.llen(queue.key) == 0)


@pytest.mark.req("JOB-9")
def test_no_message_runs_code(server: Valkey, client: Any, queue: Queue, worker: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {trace}",)

    for field in FIELDS:
        message = queue.create_job(hints.PING)
        message.save()
        client.hset(message.key, field, pickle.dumps(Evil()))
        client.lpush(queue.key, message.id)
    for name, value in (("success", "os.abort"), ("failure", "os.abort"), ("stopped", "os.abort")):
        message = queue.create_job("os.system", args=(f"touch {trace}",))
        message.save()
        client.hset(message.key, f"{name}_callback_name", value)
        client.lpush(queue.key, message.id)
    answer_ping(server.url)
    assert not trace.exists()
    assert worker.poll() is None


@pytest.mark.req("JOB-9")
def test_a_forged_retry_ends(server: Valkey, client: Any, queue: Queue, worker: Any) -> None:
    message = queue.create_job("os.getpid", failure_ttl=60)
    message.save()
    client.hset(message.key, mapping={"retries_left": 10**9, "retry_intervals": json.dumps([0])})
    client.lpush(queue.key, message.id)
    until(lambda: message.get_status(refresh=True) == "failed")
    time.sleep(1)
    assert client.llen(queue.key) <= 1
    answer_ping(server.url)


@pytest.mark.req("JOB-9")
def test_a_huge_message_is_survived(server: Valkey, client: Any, queue: Queue, worker: Any) -> None:
    for data in (b"x" * 30_000_000, json.dumps([hints.PLACE, None, ["y" * 20_000_000], {}]).encode()):
        message = queue.create_job(hints.PING, failure_ttl=60)
        message.save()
        client.hset(message.key, "data", data)
        client.lpush(queue.key, message.id)
    client.rpush(queue.key, *[b"z" * 1_000_000] * 20)
    answer_ping(server.url)
    assert worker.poll() is None


@pytest.mark.req("JOB-9")
@pytest.mark.timeout(240)
def test_a_key_of_another_type_is_set_right(server: Valkey, client: Any, queue: Queue, worker: Any) -> None:
    """Every key in use, one after the other; after each the worker works again, the forged key left in its place."""
    time.sleep(3)  # the cron has been round
    used = {key for key in client.keys("rq:*") if not key.startswith(b"rq:job:")}
    used |= {queue.key.encode(), b"rq:queues", b"rq:workers", b"rq:workers:mingora", b"rq:queue:mingora:intermediate"}
    used |= {f"rq:{kind}:mingora".encode() for kind in ("wip", "finished", "failed", "deferred", "scheduled")}
    for key in sorted(used):
        kind = client.type(key)
        client.delete(key)
        if kind == b"string":
            client.hset(key, "forged", "1")
        else:
            client.set(key, "forged")
        until(lambda: pinged(server.url), 30)
        assert worker.poll() is None, key


def pinged(url: str) -> bool:
    """Whether a task gets through now."""
    try:
        with connect(url) as client:
            queue = Queue(hints.QUEUE, connection=client, serializer=JSONSerializer)
            message = queue.enqueue(hints.PING, result_ttl=60)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                if message.get_status() == "finished":
                    return True
                time.sleep(0.05)
    except redis.RedisError:
        time.sleep(0.2)
    return False


@pytest.mark.req("JOB-9")
def test_forged_marks_hold_up_no_sweep_and_no_hint(client: Any, queue: Queue, worker: Any) -> None:
    for name in SECONDS_BETWEEN:
        client.set(sweep_mark(name), "forged")
    until(lambda: client.ttl(sweep_mark(hints.SWEEP_EXPIRE)) != -1)
    mark = waiting_mark(hints.CANCEL, "job_x")
    client.set(mark, "forged")
    sender = RedisHints(client)
    sender.cancel("job_x")
    assert 0 < client.ttl(mark) <= hints.MARK_SECONDS or not client.exists(mark)


@pytest.mark.req("JOB-9")
def test_a_forged_wake_up_wakes_nobody_and_ends_nothing(server: Valkey, client: Any) -> None:
    waiters = Waiters(4)
    listener = Listener(server.url, waiters)
    listener.start()
    until(lambda: client.pubsub_numsub(CHANNEL)[0][1] == 1)
    with waiters.register(["job:1"]) as event:
        for forged in (b"\xff\xfe", b"", b"\n" * 1000, b"x" * 5_000_000, b"\x00"):
            client.publish(CHANNEL, forged)
        assert not event.wait(0.5)
        client.publish(CHANNEL, "job:1")
        assert event.wait(5)
    listener.stop()
    listener.join(5)
    assert not listener.is_alive()
