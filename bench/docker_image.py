"""An image by digest for the benchmarks of Docker jobs: the platform's base image, from a registry on 127.0.0.1."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.processes import Processes

REPOSITORY = Path(__file__).parent.parent
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")
_CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: "127.0.0.1:0"}}
"""


@contextmanager
def pinned(folder: Path, processes: Processes) -> Iterator[str]:
    """``repository@sha256:…`` which the engine holds inside the block. Needs docker and docker-registry."""
    if shutil.which("docker") is None or shutil.which("docker-registry") is None:
        raise SystemExit("bench docker needs a Docker Engine, its client docker, and docker-registry")
    (folder / "registry.yml").write_text(_CONFIG.format(folder=folder))
    with (folder / "registry.log").open("w") as log:
        processes.start("docker-registry", "serve", str(folder / "registry.yml"), stdout=log, stderr=log)
    tag = f"{_address(folder / 'registry.log')}/bench:{secrets.token_hex(4)}"
    _docker("tag", _base(), tag)
    _docker("push", "--quiet", tag)
    digests = json.loads(_docker("image", "inspect", "--format", "{{json .RepoDigests}}", tag))
    reference = next(str(found) for found in digests if str(found).startswith(tag.rpartition(":")[0] + "@"))
    try:
        yield reference
    finally:
        _docker("rmi", tag)  # and with it the name by digest


def _base() -> str:
    """The base image: BASE_IMAGE's as for compose, one that deploy/offline/build.sh made, or compose.yaml's own."""
    made = _docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "mingora-offline/base").split()
    found = re.search(r"\$\{BASE_IMAGE:-([^}]+)\}", (REPOSITORY / "compose.yaml").read_text())
    assert found is not None
    image = os.environ.get("BASE_IMAGE") or (made[0] if made else found[1])
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode != 0:
        try:
            _docker("pull", "--quiet", image)
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"{image} can't be pulled; deploy/offline/build.sh makes one, or name one by BASE_IMAGE"
            ) from error
    return image


def _address(log: Path) -> str:
    until = time.monotonic() + 20
    while (found := _LISTENING.search(log.read_text())) is None:
        if time.monotonic() > until:
            raise SystemExit(f"docker-registry doesn't listen: {log.read_text()}")
        time.sleep(0.05)
    return found[1]


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], text=True, stdout=subprocess.PIPE, check=True).stdout
