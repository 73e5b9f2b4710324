"""Workers with --docker-image against a fake platform, and what such a worker leaves on its machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
from e2e_support import until
from service.worker.fake_platform import FakePlatform, Job
from service.worker.worker_process import WorkerProcess

from mingora_worker.runtimes.docker import outputs
from mingora_worker.runtimes.docker.leftovers import WORKER, worker_label
from mingora_worker.runtimes.docker.output_loop import mounts_below

START_SECONDS = 60.0
END_SECONDS = 30.0


class Workers:
    """Starts workers with Docker's runtime in folders of their own; all end with the block."""

    def __init__(self, folder: Path, image: str, env: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._image = image
        self._env = env or {}
        self._started: list[WorkerProcess] = []
        (folder / "home").mkdir()

    def start(
        self,
        platform: FakePlatform,
        *options: str,
        root: str = "root",
        image: bool = True,
        own_code: bool = False,
        changed: str = "",
        env: Mapping[str, str] | None = None,
    ) -> WorkerProcess:
        """`changed` as of `WorkerProcess`; `image` False leaves --docker-image out."""
        words = ["--docker-image", self._image, *options] if image else list(options)
        environ = {"MINGORA_TOKEN": platform.user_token, **self._env, **(env or {})}
        worker = WorkerProcess(
            platform, self.root(root), self._folder / "home", words, environ, own_code=own_code, changed=changed
        )
        self._started.append(worker)
        return worker

    def waiting(self, platform: FakePlatform, *options: str, **more: Any) -> WorkerProcess:
        """Like `start`, and returns when it waits for jobs."""
        worker = self.start(platform, *options, **more)
        waits(worker)
        return worker

    def root(self, name: str = "root") -> Path:
        return self._folder / name

    def close(self) -> None:
        """Ends the workers, as by Ctrl-C."""
        for worker in self._started:
            worker.close()

    def clear(self) -> None:
        """Removes what killed ones left, when a test has failed."""
        environment = {**os.environ, **self._env}
        with contextlib.closing(docker.from_env(environment=environment)) as client:
            for root in {worker.root for worker in self._started}:
                for name in containers(root, client):
                    client.api.remove_container(name, force=True)
                outputs.clear(root)


def waits(worker: WorkerProcess) -> None:
    """Returns when it waits for jobs."""
    until(lambda: bool(worker.named("waiting")) or worker.process.poll() is not None, START_SECONDS, "a worker waits")
    assert worker.process.poll() is None, worker.events


@contextlib.contextmanager
def docker_workers(folder: Path, image: str, env: Mapping[str, str] | None = None) -> Iterator[Workers]:
    workers = Workers(folder, image, env)
    try:
        yield workers
    finally:
        workers.close()
        workers.clear()


@contextlib.contextmanager
def fake_platform(**settings: Any) -> Iterator[FakePlatform]:
    platform = FakePlatform(**settings)
    try:
        yield platform
    finally:
        platform.close()


def submit(platform: FakePlatform, script: str, files: dict[str, bytes] | None = None, **spec: Any) -> Job:
    """A Docker job that runs a shell's script, which is its own first process."""
    resources = {"memoryMiB": 64, "cpu": 1, **spec.pop("resources", {})}
    return platform.submit(["/bin/sh", "-c", script], files, runtime="docker", resources=resources, **spec)


def python(platform: FakePlatform, code: str, files: dict[str, bytes] | None = None, **spec: Any) -> Job:
    """A Docker job that runs a Python program."""
    resources = {"memoryMiB": 128, "cpu": 1, **spec.pop("resources", {})}
    return platform.submit(["python3", "-c", code], files, runtime="docker", resources=resources, **spec)


def says(platform: FakePlatform, job: Job, text: bytes = b"begun", seconds: float = END_SECONDS) -> None:
    """Waits until the job's log has the text."""
    platform.wait(lambda: bool(job.leases) and text in job.lease.log, seconds)


def end(platform: FakePlatform, job: Job, seconds: float = END_SECONDS) -> tuple[str, str | None, Any]:
    """Outcome, reason, and exit code or else signal of the job that has been reported."""
    report = platform.report(job, seconds)
    code = report["exitCode"] if report["exitCode"] is not None else report["signal"]
    return report["outcome"], report["reason"] and report["reason"]["code"], code


def containers(root: Path, client: docker.DockerClient) -> list[str]:
    """The names of the containers of the worker in that folder."""
    if not root.exists():
        return []
    found = client.api.containers(all=True, filters={"label": f"{WORKER}={worker_label(root)}"})
    return [name for container in found for name in container["Names"]]


def left_by(root: Path, client: docker.DockerClient) -> list[str]:
    """What its machine still has of jobs of the worker in that folder: containers, volumes, mounts, loops, files."""
    if not root.exists():
        return []
    volumes = client.volumes.list(filters={"label": f"{WORKER}={worker_label(root)}"})
    found = [*containers(root, client), *(str(volume.name) for volume in volumes)]
    found += [str(point) for point in mounts_below(root)]
    found += [str(path) for path in (root / "jobs").rglob("*")]
    return found + [line for line in _loop_files() if line.startswith(f"{root}/")]


def _loop_files() -> list[str]:
    """The files behind all loop devices."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.append(file.read_text().strip())
    return found
