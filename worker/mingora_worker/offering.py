"""Which runtimes this worker has, by its options, and what it says of them to the platform."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mingora.errors import MingoraError, UsageProblem
from mingora_worker.config import Config
from mingora_worker.console import Console
from mingora_worker.machine import Machine
from mingora_worker.runtimes.base import Offer, Runtime
from mingora_worker.runtimes.docker.data import refuse_dangerous
from mingora_worker.runtimes.native import NativeRuntime
from mingora_worker.state import JobFolder, Root
from mingora_worker.texts import _

if TYPE_CHECKING:
    from mingora_worker.runtimes.docker.runtime import DockerRuntime

DOCKER = "docker"


def refuse_nothing(config: Config) -> None:
    """Raises `UsageProblem` when the options allow no job at all."""
    if not config.allow_own_code and config.docker_image is None:
        raise UsageProblem(
            _("Nothing is allowed to run: neither native jobs nor jobs in containers."),
            hint=_(
                "--allow-own-code runs native jobs of your own account with all your rights on this machine; "
                "--docker-image repository@sha256:… runs Docker jobs in a container."
            ),
        )


class Offering:
    """The runtimes of one worker. A container engine is asked only when there is something for it to do.

    Raises `MingoraError` when no engine answers, unless native jobs can be run without one.
    """

    def __init__(self, root: Root, config: Config, machine: Machine, console: Console) -> None:
        self._native = NativeRuntime() if config.allow_own_code else None
        self._docker: DockerRuntime | None = None
        self._console = console
        self._ready: dict[str, Runtime] = {}
        left = [record for record in map(JobFolder.record, root.leftovers()) if record and record.runtime == DOCKER]
        if config.docker_image is not None:
            refuse_dangerous(config.data, root.path)
            try:
                self._docker = _docker(root, config, machine, console)
            except MingoraError as error:
                if self._native is None or left:  # what still runs in a container has to be ended first
                    raise
                self._refuse(error)
        elif left:
            _clear(root, console)

    def prepare(self, check: Callable[[], object]) -> Mapping[str, Runtime]:
        """The runtimes that are ready, by name.

        One that isn't ready is told and left out; where it is the only one, its `MingoraError` is raised.
        """
        if self._native is not None:
            self._ready[self._native.name] = self._native
        if self._docker is not None:
            try:
                self._docker.prepare(check)
                self._ready[self._docker.name] = self._docker
            except MingoraError as error:
                if not self._ready:
                    raise
                self._refuse(error)
        return self._ready

    def _refuse(self, error: MingoraError) -> None:
        text = _("Docker jobs are not offered: {reason}").format(reason=error.message)
        self._console.event("docker_refused", text, hint=error.hint)

    def close(self) -> None:
        """Gives back what the runtimes hold on this machine."""
        if self._docker is not None:
            self._docker.close()

    def offer(self) -> Offer:
        if self._docker is None or DOCKER not in self._ready:
            return Offer(tuple(self._ready))
        return Offer(tuple(self._ready), self._docker.reference.digest, self._docker.profile)


def _docker(root: Root, config: Config, machine: Machine, console: Console) -> DockerRuntime:
    """The Docker runtime, with nothing left of a former worker's containers."""
    needs_docker_package()
    from mingora_worker.runtimes.docker.limits import Allowance
    from mingora_worker.runtimes.docker.runtime import DockerRuntime

    assert config.docker_image is not None
    allowance = Allowance.of(root.path, machine, config.max_disk)
    runtime = DockerRuntime(
        root.path, config.docker_image, allowance, console,
        gpu_index=config.gpu_index, cluster_network=config.allow_cluster_network,
    )  # fmt: skip
    runtime.clear()
    runtime.tell_unreadable(config.data)
    return runtime


def _clear(root: Root, console: Console) -> None:
    """Ends what an earlier start with --docker-image left; this one runs no containers."""
    needs_docker_package()
    from mingora_worker.runtimes.docker import leftovers
    from mingora_worker.runtimes.docker.engine import Engine

    worker = leftovers.worker_label(root.path)
    engine = Engine(leftovers.label_of(worker))
    try:
        leftovers.clear(engine, root.path, worker, console)
    finally:
        engine.close()


def needs_docker_package() -> None:
    """Raises `UsageProblem` where the SDK isn't installed: native jobs do without it."""
    try:
        import docker  # noqa: F401
    except ImportError as error:
        command = [sys.executable, "-m", "pip", "install", "docker>=7.1"]
        raise UsageProblem(
            _("--docker-image needs the Python package docker."),
            hint=_("Install it: {command}").format(command=shlex.join(command)),
        ) from error
