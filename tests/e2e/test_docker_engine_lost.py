"""Engines that crash, hang or go away under a worker, and engines that a pipe can't be shared with."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import docker_images
import pytest
from docker_support import Registry
from docker_workers import Workers, containers, docker_workers, end, left_by, python, says, submit
from e2e_support import prompt, until
from second_engine import SecondEngine, image_inside, second_engine
from service.worker.fake_platform import FakePlatform

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(120)]

LOST_SECONDS = 2.0
# The times of a worker whose engine goes away, shorter.
HASTY = f"""
from mingora_worker import attempt, loop
from mingora_worker.runtimes.docker import container, engine
engine.LOST_SECONDS = container.LOST_SECONDS = {LOST_SECONDS}
engine.connect.__defaults__ = (1.0,)
loop.DISK_SECONDS = attempt.PIPE_SECONDS = 0.5
container.KILL_SECONDS = 1.0
"""
NO_PIPE = "from mingora_worker.runtimes.docker import canary; canary.can_pipe = lambda: False\n"
WAITS = "echo begun; while [ ! -e /tmp/never ]; do sleep 0.05; done"
SHORT = "echo begun; i=0; while [ $i -lt 60 ]; do sleep 0.05; i=$((i+1)); done; echo done; echo kept >results/kept"


@pytest.fixture(scope="module")
def engine(registry: Registry) -> Iterator[tuple[SecondEngine, str]]:
    with second_engine() as engine, image_inside(engine, registry, docker_images.plain(registry)) as image:
        yield engine, image


@pytest.fixture(scope="module")
def second(engine: tuple[SecondEngine, str]) -> SecondEngine:
    return engine[0]


@pytest.fixture
def workers(engine: tuple[SecondEngine, str], tmp_path: Path) -> Iterator[Workers]:
    """Of the second engine, which the test leaves running; nothing of theirs is left then."""
    second, image = engine
    with docker_workers(tmp_path, image, second.env) as workers:
        yield workers
        workers.close()
        with reached(second) as client:
            assert left_by(workers.root(), client) == []


@contextlib.contextmanager
def reached(second: SecondEngine) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.from_env(environment=dict(second.env))) as client:
        yield client


@pytest.mark.req("WORK-7")
def test_an_engine_that_crashes_and_comes_back_ends_its_jobs_as_lost(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    worker = workers.waiting(platform, changed=HASTY)
    job = submit(platform, WAITS)
    says(platform, job)
    second.kill()
    second.start()
    assert end(platform, job)[:2] == ("failed", "engine_lost")
    after = submit(platform, "echo again")
    assert end(platform, after) == ("succeeded", None, 0)
    assert worker.process.poll() is None
    assert len(worker.named("isolation")) == 2  # it was proved anew, although it answered whenever it was asked


@pytest.mark.req("WORK-7")
def test_an_engine_that_restarts_while_nothing_runs_is_proved_anew(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    worker = workers.waiting(platform, changed=HASTY)
    second.kill()
    second.start()
    assert end(platform, submit(platform, "echo after")) == ("succeeded", None, 0)
    platform.wait(lambda: len(worker.named("isolation")) == 2)


@pytest.mark.req("WORK-7")
def test_an_engine_that_stays_away_ends_the_job_and_the_claiming_until_it_is_back(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    worker = workers.waiting(platform, changed=HASTY)
    job = submit(platform, WAITS)
    says(platform, job)
    lost = time.monotonic()
    second.kill()
    try:
        assert end(platform, job)[:2] == ("failed", "engine_lost")
        assert LOST_SECONDS <= time.monotonic() - lost < prompt(LOST_SECONDS + 6)
        platform.wait(lambda: bool(worker.named("paused")))
        assert platform.pauses[-1]["paused"] and "container engine" in platform.pauses[-1]["reason"]
        after = submit(platform, "echo again")
    finally:
        second.start()
    assert end(platform, after) == ("succeeded", None, 0)
    order = [event["event"] for event in worker.events]
    assert order.index("paused") < order.index("container_removed") < order.index("resumed")
    assert not platform.pauses[-1]["paused"]


@pytest.mark.req("WORK-7")
def test_an_engine_that_hangs_is_lost_as_well(second: SecondEngine, platform: FakePlatform, workers: Workers) -> None:
    worker = workers.waiting(platform, changed=HASTY)
    job = submit(platform, WAITS)
    says(platform, job)
    second.freeze()
    try:
        assert end(platform, job)[:2] == ("failed", "engine_lost")
        platform.wait(lambda: bool(worker.named("paused")))
    finally:
        second.thaw()
    after = submit(platform, "echo again")
    assert end(platform, after) == ("succeeded", None, 0)


@pytest.mark.req("WORK-7")
def test_a_short_hang_of_the_engine_changes_nothing(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    workers.waiting(platform, changed=HASTY)
    job = submit(platform, SHORT)
    says(platform, job)
    second.freeze()
    time.sleep(1.5)  # longer than any call waits for its answer
    second.thaw()
    assert end(platform, job) == ("succeeded", None, 0)
    assert platform.results(job) == {"kept": b"kept\n"}
    assert bytes(job.lease.log) == b"begun\ndone\n"


@pytest.mark.req("WORK-7")
def test_a_job_outlives_a_crash_of_an_engine_that_restores_its_containers(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    second.stop()
    second.start("--live-restore")
    try:
        workers.waiting(platform, changed=HASTY)
        job = submit(platform, SHORT)
        says(platform, job)
        second.kill()
        second.start("--live-restore")
        assert end(platform, job) == ("succeeded", None, 0)
        assert platform.results(job) == {"kept": b"kept\n"}
        assert bytes(job.lease.log) == b"begun\ndone\n"
    finally:
        workers.close()
        second.stop()
        second.start()


# -- where no pipe can be shared -------------------------------------------------------------------------------


@pytest.mark.req("WORK-6", "WORK-7")
def test_without_a_pipe_the_log_is_exact_as_well(platform: FakePlatform, workers: Workers) -> None:
    workers.waiting(platform, changed=NO_PIPE)
    code = """
import random, sys
data = random.Random(1).randbytes(3_000_000) + b"x" * 100_000 + b"\\n"
sys.stdout.buffer.write(data)
"""
    job = python(platform, code)
    last = submit(platform, "printf 'no end of a line'; exit 4")
    assert end(platform, job) == ("succeeded", None, 0)
    assert job.lease.isolation is not None and job.lease.isolation["log"] == "attached"
    wanted = random.Random(1).randbytes(3_000_000) + b"x" * 100_000 + b"\n"
    assert hashlib.sha256(job.lease.log).digest() == hashlib.sha256(wanted).digest()
    assert end(platform, last) == ("failed", "exit_code", 4)
    assert bytes(last.lease.log) == b"no end of a line"


@pytest.mark.req("WORK-4", "WORK-7")
def test_without_a_pipe_a_stalled_reader_does_not_keep_a_cancelled_job_alive(
    second: SecondEngine, platform: FakePlatform, workers: Workers
) -> None:
    changed = """
import threading
from mingora_worker import attempt
from mingora_worker.logs import Spool
attempt.PIPE_SECONDS = 0.5
Spool.append = lambda self, data: threading.Event().wait()
"""
    workers.waiting(platform, changed=NO_PIPE + changed)
    job = submit(platform, "trap '' TERM; while :; do echo flood; done")
    platform.wait(lambda: bool(job.leases) and job.lease.started)
    with reached(second) as client:
        (name,) = containers(workers.root(), client)
        running = int(client.api.inspect_container(name)["State"]["Pid"])
        platform.cancel(job, grace=0.5)
        began = time.monotonic()
        until(lambda: not Path(f"/proc/{running}").exists(), 20, "the job's first process ends")
        assert time.monotonic() - began < prompt(1.5)
    assert end(platform, job) == ("cancelled", "cancelled", 9)
