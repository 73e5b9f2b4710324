"""SIGKILL of workers with --docker-image, at any moment: their next start leaves nothing of it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker_workers import Workers, containers, docker_workers, end, fake_platform, left_by, says, submit, waits
from e2e_support import prompt, until
from service.worker.fake_platform import FakePlatform

from mingora_worker.runtimes.docker.leftovers import WORKER, worker_label

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(120)]

CLEAR_SECONDS = 3.0
COUNT = 5
STUBBORN = "trap '' TERM; echo kept >results/kept; echo begun; while :; do sleep 0.05; done"
# Each patches what a moment passes, so that the worker ends there as by `kill -9`.
DIE = """
import os, signal
from mingora_worker.runtimes.docker import canary, container
def die(*_args, **_named):
    os.kill(os.getpid(), signal.SIGKILL)
def after(function):
    return lambda *args, **named: (function(*args, **named), die())
"""
MOMENTS = {
    "canary": "canary.create = after(canary.create)",
    "output": "container.create = die",
    "created": "container.create = after(container.create)",
    "collecting": "container.ContainerRank.collect = die",
    "removing": "container.ContainerRank.close = die",
}


@pytest.fixture
def workers(image: str, tmp_path: Path) -> Iterator[Workers]:
    with docker_workers(tmp_path, image) as workers:
        yield workers


@pytest.mark.req("WORK-7", "JOB-7")
def test_five_killed_workers_leave_nothing_three_seconds_after_their_restart(
    workers: Workers, client: docker.DockerClient
) -> None:
    names = [f"root{number}" for number in range(COUNT)]
    roots = [workers.root(name) for name in names]

    def left() -> list[str]:
        return [name for root in roots for name in containers(root, client)]

    with contextlib.ExitStack() as stack:
        platforms = {name: stack.enter_context(fake_platform()) for name in names}  # each has one node's leases
        killed = [workers.start(platform, root=name) for name, platform in platforms.items()]
        for worker in killed:
            waits(worker)
        jobs = {platform: submit(platform, STUBBORN) for platform in platforms.values()}
        for platform, job in jobs.items():
            says(platform, job)
        for worker in killed:
            worker.kill()
        assert len(left()) == COUNT
        restarted = time.monotonic()
        again = [workers.start(platform, root=name) for name, platform in platforms.items()]
        until(
            lambda: not any(containers(root, client) for root in roots),
            prompt(CLEAR_SECONDS),
            "all containers are gone",
        )
        assert time.monotonic() - restarted < prompt(CLEAR_SECONDS)
        assert {end(platform, job) for platform, job in jobs.items()} == {("failed", "worker_stopped", None)}
        for worker in again:
            waits(worker)
        assert [line for root in roots for line in left_by(root, client)] == []
        after = {platform: submit(platform, "echo again") for platform in platforms.values()}
        assert {end(platform, job) for platform, job in after.items()} == {("succeeded", None, 0)}


@pytest.mark.req("WORK-7", "JOB-7")
@pytest.mark.parametrize("image_again", [True, False], ids=["with-image", "native-only"])
def test_a_killed_worker_s_containers_are_gone_at_its_next_start_whatever_it_offers_then(
    platform: FakePlatform, workers: Workers, client: docker.DockerClient, image: str, image_again: bool
) -> None:
    worker = workers.start(platform)
    job = submit(platform, STUBBORN)
    says(platform, job)
    worker.kill()
    label = {WORKER: worker_label(workers.root())}
    for _number in range(COUNT - 1):  # as if a former start had left them too
        client.containers.run(image, ["sleep", "600"], labels=label, detach=True, network_mode="none")
    client.volumes.create(labels=label)
    foreign = client.containers.run(image, ["sleep", "600"], labels={WORKER: "f" * 24}, detach=True)
    try:
        restarted = time.monotonic()
        worker = workers.start(platform, image=image_again, own_code=not image_again)
        until(lambda: not containers(workers.root(), client), prompt(CLEAR_SECONDS), "all containers are gone")
        assert time.monotonic() - restarted < prompt(CLEAR_SECONDS)
        assert end(platform, job) == ("failed", "worker_stopped", None)
        assert len(worker.named("container_removed")) == COUNT
        waits(worker)
        assert left_by(workers.root(), client) == []
        foreign.reload()
        assert foreign.status == "running"
    finally:
        foreign.remove(force=True)


@pytest.mark.req("WORK-7", "JOB-7")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_killed_at_any_moment_leaves_nothing_after_its_next_start(
    platform: FakePlatform, workers: Workers, client: docker.DockerClient, moment: str
) -> None:
    job = submit(platform, "echo kept >results/kept")
    worker = workers.start(platform, changed=DIE + MOMENTS[moment])
    assert worker.process.wait(60) == -signal.SIGKILL
    assert left_by(workers.root(), client) != []
    again = workers.start(platform)
    outcome = end(platform, job)
    if moment in {"canary", "removing"}:  # not claimed yet, or reported already
        assert outcome == ("succeeded", None, 0)
    else:
        assert outcome == ("failed", "worker_stopped", None)
    after = submit(platform, "echo again")
    assert end(platform, after) == ("succeeded", None, 0)
    again.process.terminate()
    assert again.wait() == 0
    assert left_by(workers.root(), client) == []
