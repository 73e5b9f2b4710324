"""The Docker runtime of one worker: made ready once, then it starts one container a rank."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from mingora_worker.api import Grant
from mingora_worker.console import Console
from mingora_worker.environment import own_variables, platform_variables, wants_gpu
from mingora_worker.results import FOLDER
from mingora_worker.runtimes.base import Isolation, Launch, Lost, StartFailed
from mingora_worker.runtimes.docker import canary, data, image, leftovers, settings
from mingora_worker.runtimes.docker.container import ContainerRank
from mingora_worker.runtimes.docker.create import share
from mingora_worker.runtimes.docker.engine import ENGINE_FAILURES, Engine, EngineProblem, explanation, lost
from mingora_worker.runtimes.docker.limits import Allowance, Limits
from mingora_worker.runtimes.docker.output import Output, OutputFailed, OutputFull, Place
from mingora_worker.runtimes.docker.pipe import NAME as PIPE_NAME
from mingora_worker.runtimes.docker.reference import Reference
from mingora_worker.runtimes.docker.user import choose
from mingora_worker.texts import _


class DockerRuntime:
    """Runs jobs in containers of one image. `prepare` comes before everything else but `clear`.

    Raises `EngineProblem` where no engine answers.
    """

    name = "docker"

    def __init__(
        self,
        root: Path,
        wanted: Reference,
        allowance: Allowance,
        console: Console,
        *,
        gpu_index: int | None = None,
        cluster_network: bool = False,
    ) -> None:
        self.reference = wanted
        self.profile: Mapping[str, Any] = {}
        self._root = root
        self._gpu_index = gpu_index
        self._cluster_network = cluster_network
        self._console = console
        self._worker = leftovers.worker_label(root)
        self._engine = Engine(leftovers.label_of(self._worker))
        self._user = choose(rootless="rootless" in self._engine.options)
        self._allowance = allowance.within(self._engine.info)
        self._planned: dict[str, Limits] = {}
        self._image = ""
        self._make: Callable[[Place], Output] | None = None
        self._piped = False
        self._unclear = False
        self._away = False

    def clear(self, check: Callable[[], object] = lambda: None) -> None:
        """Ends and removes what a former worker in this folder left. Raises `EngineProblem`, `Lost`."""
        leftovers.clear(self._engine, self._root, self._worker, self._console, check)
        self._unclear = False

    def tell_unreadable(self, names: Mapping[str, Path]) -> None:
        """Warns of local data that a job in a container could only fail to read."""
        for name in data.unreadable(names, self._user):
            text = _("--data {name}: jobs run as user {user}, who may not read it. Try: chmod -R o+rX {path}")
            text = text.format(name=name, user=self._user, path=shlex.quote(str(names[name])))
            self._console.event("data_unreadable", text, data=name)

    def prepare(self, check: Callable[[], object] = lambda: None) -> None:
        """Fetches the image and proves on this engine that a container holds. Raises `EngineProblem`."""

        def progress(text: str) -> None:
            self._console.event("pull", text)

        self._console.event("image", _("Looking for the image {image} …").format(image=self.reference))
        self._image = image.fetch(self._engine, self.reference, progress, check)
        place = canary.Trial(self._engine, self._image, self._root, self._user, self._labels("canary", ""))
        proof = canary.prove(place, self._gpu_index, check)
        self._make = proof.make
        self._piped = proof.piped
        self._allowance = replace(self._allowance, output_in_memory=proof.output == "tmpfs")
        self.profile = {"image": str(self.reference), **proof.profile}
        text = _("Containers hold on this engine ({engine}); output is limited by {quota}.").format(**proof.profile)
        self._console.event("isolation", text, **self.profile)

    def close(self) -> None:
        self._user.release()
        self._engine.close()

    def problem(self, check: Callable[[], object]) -> str | None:
        """The engine has to answer and nothing of a former job may be left; one that was away has to prove itself."""
        self._away = self._away or self._engine.interrupted
        if not self._engine.answers():
            self._away = True
            return _("The container engine doesn't answer.")
        try:
            self._away = self._away or not self._has_image()
            if self._unclear or self._away:
                self.clear(check)
            if self._away:
                self._engine.close()
                self._engine = Engine(leftovers.label_of(self._worker))
                self._allowance = self._allowance.within(self._engine.info)
                self.prepare(check)
        except (EngineProblem, Lost) as error:
            return error.message
        except ENGINE_FAILURES as error:
            return explanation(error)
        self._away = False
        return None

    def _has_image(self) -> bool:
        """Whether nobody has removed the image meanwhile: it is fetched again then, and not job after job lost."""
        try:
            self._engine.client.images.get(self._image)
        except NotFound:
            return False
        return True

    def isolation(self, grant: Grant) -> Isolation:
        limits = self._allowance.limits(grant.spec.get("resources") or {})
        self._planned = {grant.lease_id: limits}
        profile = {
            **self.profile,
            "memoryMiB": limits.memory_mib,
            "cpus": limits.cpus,
            "outputMiB": limits.output_bytes >> 20,
            "outputFiles": limits.output_inodes,
            "network": "host" if self._on_host_network(grant) else "none",
        }
        if not self._on_host_network(grant):
            return Isolation(profile)
        return Isolation(
            profile,
            (
                _(
                    "This job's container uses the host's network, as its network group needs: it reaches what the "
                    "machine reaches, services on 127.0.0.1 included. Its isolation is weaker than that of other jobs."
                ),
            ),
        )

    # -- starting ----------------------------------------------------------------------------------------------

    def start(self, launch: Launch) -> ContainerRank:
        assert self._make is not None, "prepare first"
        # What the platform was told, although the room on the disk may be another by now.
        limits = self._planned.pop(launch.grant.lease_id, None) or self._allowance.limits(launch.resources)
        self._have_image()
        share(launch.folder.project, self._user)
        try:
            (launch.folder.project / FOLDER).mkdir(exist_ok=True)
        except FileExistsError as error:
            raise StartFailed(
                _("The project's own {name} is no folder.").format(name=FOLDER), "worker_error"
            ) from error
        labels = self._labels(launch.grant.lease_id, launch.grant.job_id)
        output = self._output(launch, limits, labels)
        try:
            rank = ContainerRank(self._engine, launch, self._box(launch, limits, labels, output), output, self._left)
        except BaseException:
            output.close()
            raise
        try:
            self._start(rank)
        except BaseException:
            rank.close()
            raise
        return rank

    def _have_image(self) -> None:
        """Fetches an image that was removed since the claim was made."""
        try:
            if not self._engine.call(self._has_image):
                self._image = image.fetch(self._engine, self.reference, lambda text: self._console.event("pull", text))
        except EngineProblem as error:
            raise StartFailed(error.message, "worker_error") from error

    def _output(self, launch: Launch, limits: Limits, labels: Mapping[str, str]) -> Output:
        assert self._make is not None
        place = Place(
            folder=launch.folder.path,
            uid=self._user.uid,
            gid=self._user.gid,
            limit_bytes=limits.output_bytes,
            limit_inodes=limits.output_inodes,
            engine=self._engine.client,
            labels=labels,
            image=self._image,
            preset=launch.folder.project / FOLDER,
        )
        try:
            return self._make(place)
        except OutputFull as error:
            raise StartFailed(error.message, "output_limit") from error
        except OutputFailed as error:
            raise StartFailed(error.message, "worker_error") from error
        except ENGINE_FAILURES as error:
            self._left()  # what was asked for may come to be when the engine is back
            raise lost() from error

    def _box(self, launch: Launch, limits: Limits, labels: Mapping[str, str], output: Output) -> settings.Box:
        wanted = {name: launch.data[name] for name in launch.grant.spec.get("data") or []}
        places = {name: f"{settings.DATA}/{name}" for name in wanted}
        env = {k: v for k, v in own_variables(launch.grant).items() if not k.upper().startswith("NVIDIA_")}
        env |= platform_variables(launch.grant, results=settings.RESULTS, data=places)
        return settings.Box(
            name=f"mingora-{launch.grant.lease_id}-{self._worker[:12]}",
            labels=labels,
            user=str(self._user),
            memory_mib=limits.memory_mib,
            scratch_mib=max(16, limits.memory_mib // 2),
            cpus=limits.cpus,
            pids=limits.pids,
            project=launch.folder.project,
            output=output.mount(settings.RESULTS),
            output_bytes=limits.output_bytes,
            pipe=launch.folder.path / PIPE_NAME if self._piped else None,
            env=settings.HOME_VARIABLES | env,
            data=wanted,
            gpu_index=launch.gpu_index if wants_gpu(launch) else None,
            host_network=self._on_host_network(launch.grant),
            user_namespaces="userns" in self._engine.options,
        )

    def _start(self, rank: ContainerRank) -> None:
        try:
            rank.start(self._image)
        except NotFound as error:
            raise StartFailed(_("The image {image} is gone.").format(image=self.reference), "worker_error") from error
        except APIError as error:
            text = _("The engine can't start the container: {reason}").format(reason=explanation(error))
            raise StartFailed(text, "worker_error") from error
        except ENGINE_FAILURES as error:
            self._left()
            raise lost() from error

    def _left(self) -> None:
        """A rank couldn't be ended for certain: nothing is claimed before the engine shows that it is gone."""
        self._unclear = True

    def _labels(self, lease_id: str, job_id: str) -> dict[str, str]:
        return {leftovers.WORKER: self._worker, leftovers.LEASE: lease_id, leftovers.JOB: job_id}

    def _on_host_network(self, grant: Grant) -> bool:
        """Only a job that names a network group, and only where this worker was told to take such jobs."""
        return self._cluster_network and bool((grant.spec.get("resources") or {}).get("networkGroup"))
