"""A worker in a container, beside the platform's: it logs in, runs a job in a container of its own, and goes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker_images
import pytest
from docker_support import Registry
from e2e_compose import ComposeStack
from e2e_support import PASSWORD, User, make_project

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]

SOCKET = "/var/run/docker.sock"
NewUser = Callable[[ComposeStack], User]


class WorkerService:
    """The service ``worker`` of the stack's project, for jobs in ``image``; ``root`` is its folder on this machine."""

    def __init__(self, stack: ComposeStack, folder: Path, image: str) -> None:
        self.stack = stack
        self.root = folder / "worker-root"
        self.root.mkdir(0o700)
        self.built = f"mingora-test/worker:{secrets.token_hex(4)}"
        uid, gid = os.geteuid(), os.getegid()
        if uid == 0:
            uid = gid = 10_002
            os.chown(self.root, uid, gid)
        assert stack.ca_file is not None
        self.ca_file = self.root / "mingora-ca.crt"
        shutil.copyfile(stack.ca_file, self.ca_file)
        self.user = f"{uid}:{gid}"
        settings = {
            "MINGORA_WORKER_IMAGE": self.built,
            "MINGORA_JOB_IMAGE": image,
            "MINGORA_WORKER_ROOT": self.root,
            "MINGORA_WORKER_USER": self.user,
            "MINGORA_WORKER_OPTIONS": "--json-logs --name beside",
            "MINGORA_DOCKER_GID": os.stat(SOCKET).st_gid,
        }
        self._settings = folder / "worker.env"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def compose(self, *words: str, stdin: str = "", seconds: float = 120) -> str:
        """``docker compose WORDS`` with the profile ``worker``; its output."""
        options = ("--env-file", str(self._settings), "--profile", "worker")
        return self.stack.compose(*options, *words, stdin=stdin, seconds=seconds)

    def inspect(self) -> dict[str, Any]:
        """What the engine says of the service's container."""
        (found,) = json.loads(self.stack.docker("inspect", self.compose("ps", "--all", "--quiet", "worker").strip()))
        return dict(found)


@pytest.fixture
def beside(compose_stack: ComposeStack, registry: Registry, tmp_path: Path) -> Iterator[WorkerService]:
    """The service, built and not started."""
    image = registry.pull(docker_images.plain(registry))
    service = WorkerService(compose_stack, tmp_path, image)
    service.compose("build", "worker", seconds=400)
    try:
        yield service
    finally:
        print(service.compose("logs", "--no-color", "worker"))  # pytest shows it where the test failed
        service.compose("rm", "--stop", "--force", "worker")
        service.stack.docker("rmi", "--force", service.built)


@pytest.mark.req("OPS-1", "WORK-1", "WORK-7")
def test_a_worker_in_a_container_runs_a_job_in_another(
    compose_stack: ComposeStack, beside: WorkerService, new_user: NewUser, tmp_path: Path
) -> None:
    user = new_user(compose_stack)
    beside.compose(
        "run", "--rm", "--no-TTY", "worker", "mingora", "login", "--server", compose_stack.url,
        "--ca-file", str(beside.ca_file), "--identifier", user.name, "--password-stdin", stdin=PASSWORD + "\n",
    )  # fmt: skip
    assert (beside.root / "login.json").stat().st_mode & 0o777 == 0o600
    beside.compose("up", "--detach", "--no-deps", "--no-build", "worker")
    script = "echo said; id -u; echo kept > results/kept; touch project 2>/dev/null || echo refused"
    project = make_project(tmp_path / "contained", ["sh", "-c", script], runtime="docker", timeoutSeconds=60)
    job_id = user.submit(project)
    user.run("wait", job_id, "--timeout", "90")
    uid = beside.user.partition(":")[0]
    assert user.run("logs", job_id).stdout.decode() == f"said\n{uid}\nrefused\n"
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "kept").read_text() == "kept\n"
    (rank,) = user.job(job_id)["ranks"]
    assert rank["nodeName"] == "beside"
    # Without root and mounts of its own it has the engine's tmpfs; the job's output comes by a pipe that both see.
    assert {name: rank["isolation"][name] for name in ("quota", "log", "user", "network")} == {
        "quota": "tmpfs",
        "log": "pipe",
        "user": beside.user,
        "network": "none",
    }
    beside.compose("stop", "worker")
    assert beside.inspect()["State"]["ExitCode"] == 0


@pytest.mark.req("OPS-1")
def test_the_worker_s_container_may_do_no_more_than_it_needs(beside: WorkerService) -> None:
    beside.compose("create", "--no-build", "worker")
    found = beside.inspect()
    settings, host = found["Config"], found["HostConfig"]
    assert settings["User"] == beside.user
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"]
    assert host["PidMode"] == ""
    # The machine's memory and CPUs are what it offers: a limit of its own would be taken for the machine's.
    assert (host["Memory"], host["NanoCpus"]) == (0, 0)
    assert {mount["Destination"]: mount["Source"] for mount in found["Mounts"]} == {
        SOCKET: SOCKET,
        str(beside.root): str(beside.root),
    }
