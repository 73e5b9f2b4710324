"""What tests with a Docker Engine share: the base images, and a registry that pinned references are pulled from."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from docker_layers import add_layer
from e2e_support import REPOSITORY, environment, until

BUILD_SECONDS = 600.0
_LISTENING = re.compile(rb"listening on (127\.0\.0\.1:\d+)")
# No cache: the processes of one run each serve the same folder.
_CONFIG = """
version: 0.1
log: {{level: info}}
storage:
  filesystem: {{rootdirectory: {data}}}
http: {{addr: "127.0.0.1:0"}}
"""


def require(there: bool, what: str) -> None:
    """Skip the test where ``what`` it needs isn't there; in CI it fails instead."""
    if not there and os.environ.get("CI"):
        pytest.fail(f"CI needs {what}")
    if not there:
        pytest.skip(f"needs {what}")


def require_engine() -> None:
    """:func:`require` for a Docker Engine that tests may use."""
    require(bool(os.environ.get("MINGORA_TEST_DOCKER")), "a Docker Engine: MINGORA_TEST_DOCKER is not set")


def offline() -> bool:
    """Whether this machine can make the base images itself, of Debian's packages."""
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None


def offline_images(folder: Path) -> Path | None:
    """The file that names the images of deploy/offline/build.sh, which makes what isn't there; None where it can't."""
    if not offline():
        return None
    images = folder / "images.env"
    run(["deploy/offline/build.sh", str(images)], BUILD_SECONDS)
    return images


def base_image(folder: Path) -> str:
    """Debian with Python, coreutils and a shell: ours where this machine can make it, else compose.yaml's."""
    images = offline_images(folder)
    if images is not None:
        return dict(line.split("=", 1) for line in images.read_text().splitlines())["BASE_IMAGE"]
    found = re.search(r"\$\{BASE_IMAGE:-([^}]+)\}", (REPOSITORY / "compose.yaml").read_text())
    assert found is not None
    return found[1]


def run(command: Sequence[str], seconds: float = 60.0, *, stdin: str = "") -> str:
    """What a command says, which must succeed."""
    done = subprocess.run(
        command, cwd=REPOSITORY, input=stdin, capture_output=True, text=True, timeout=seconds, check=False,
        env=environment(DOCKER_BUILDKIT="0"),  # its cache outlives the images; the plain builder's goes with them
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


class Registry:
    """A registry on 127.0.0.1 and the images in it, which the engine holds only while a test has pulled them."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._folder = folder

    def image(self, name: str, lines: Sequence[str] = (), files: Mapping[str, str] | None = None) -> str:
        """``ADDRESS/name@sha256:…`` of the base image with a Dockerfile's ``lines``; made once in a test run.

        ``files`` are texts for the build's folder. Of one name, every caller gives the same lines and files.
        """
        return self._once(name, name, lambda: self._push(name, lines, files or {}))

    def layered(self, reference: str, name: str, files: Callable[[], Iterable[tuple[str, Path]]]) -> str:
        """An image of the registry with a layer of ``files`` more, each with its path inside; made once in a run."""
        repository, _, digest = reference.removeprefix(f"{self.address}/").partition("@")
        where = f"http://{self.address}/v2/{repository}"
        return self._once(repository, name, lambda: add_layer(where, digest, files()))

    def pull(self, reference: str) -> str:
        """Make the engine hold the image; gives the reference back."""
        run(["docker", "pull", "--quiet", reference], BUILD_SECONDS)
        return reference

    def forget(self) -> None:
        """Take out of the engine what was pulled from here."""
        held = ["docker", "image", "ls", "--format", "{{.Repository}}@{{.Digest}}", "--digests"]
        references = run([*held, "--filter", f"reference={self.address}/*"]).split()
        if references:
            run(["docker", "rmi", "--force", *references])

    @contextmanager
    def beside(self, prefix: Sequence[str]) -> Iterator[str]:
        """The address of another registry with the same images, run by a command with ``prefix``."""
        with _served(self._folder, prefix) as address:
            yield address

    def _once(self, repository: str, name: str, make: Callable[[], str]) -> str:
        known = self._folder / f"{name}.digest"
        with _locked(self._folder):
            if not known.exists():
                known.write_text(make())
        return f"{self.address}/{repository}@{known.read_text()}"

    def _push(self, name: str, lines: Sequence[str], files: Mapping[str, str]) -> str:
        tag = f"{self.address}/{name}:new"
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            dockerfile = "\n".join([f"FROM {base_image(self._folder)}", *lines, ""])
            for path, content in {**files, "Dockerfile": dockerfile}.items():
                (Path(folder) / path).write_text(content)
            run(["docker", "build", "--quiet", "--force-rm", "--network=host", "--tag", tag, folder], BUILD_SECONDS)
        try:
            run(["docker", "push", "--quiet", tag], BUILD_SECONDS)
            digests = json.loads(run(["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", tag]))
            return next(str(found).partition("@")[2] for found in digests if found.startswith(f"{self.address}/"))
        finally:
            run(["docker", "rmi", "--force", tag])


@contextmanager
def running_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry of this test process; all processes of a test run serve the same images.

    Skips, or fails in CI, where there is no engine or no registry.
    """
    require_engine()
    require(shutil.which("docker-registry") is not None, "a registry: apt-get install docker-registry")
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "registry"
    with _shared(shared), _served(shared) as address:
        registry = Registry(address, shared)
        try:
            yield registry
        finally:
            registry.forget()


@contextmanager
def _served(folder: Path, prefix: Sequence[str] = ()) -> Iterator[str]:
    """``docker-registry`` on a free port, its content in ``folder``; the address."""
    with tempfile.TemporaryDirectory() as own:
        config, log = Path(own) / "config.yml", Path(own) / "log"
        config.write_text(_CONFIG.format(data=folder / "data"))
        with open(log, "wb") as output:
            command = ["setpriv", "--pdeathsig=TERM", *prefix, "docker-registry", "serve", str(config)]  # ends with us
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            until(lambda: bool(_LISTENING.search(log.read_bytes())) or server.poll() is not None, 20, "a registry")
            listening = _LISTENING.search(log.read_bytes())
            assert listening is not None, log.read_text()
            yield listening[1].decode()
        finally:
            server.terminate()
            server.wait(20)


@contextmanager
def _shared(folder: Path) -> Iterator[None]:
    """``folder`` while any process is in the block; the last one removes it."""
    folder.mkdir(exist_ok=True)
    with open(folder / "users", "a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield
        finally:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
