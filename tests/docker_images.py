"""The images of Docker tests, each by its pinned reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from docker_support import Registry, offline, require, run
from packaging.requirements import Requirement

VOLUME = "/var/overflow"
"""Where the image with a volume has it."""
HEALTH_FILE = "/mingora/project/results/health"
"""What the image with a health check writes to, once a second."""
ENTRYPOINT_SAYS = "the image's entry point ran"
"""What the image with an entry point prints before it runs what it is given."""

SUITE = "bookworm"
PACKAGES = "opt/python"


def plain(registry: Registry) -> str:
    """Debian with Python, coreutils and a shell, run by nobody in particular."""
    return registry.image("plain")


def with_volume(registry: Registry) -> str:
    """It declares a volume: a place that is writable, whatever the root is."""
    return registry.image("volume", [f"VOLUME {VOLUME}"])


def with_health_check(registry: Registry) -> str:
    """It has the engine run a command in the job's container."""
    return registry.image("health", [f"HEALTHCHECK --interval=1s CMD echo checked >>{HEALTH_FILE}"])


def with_entry_point(registry: Registry) -> str:
    """It has a program of its own, a user and a working folder, none of which are the job's."""
    entry = f"""ENTRYPOINT ["sh", "-c", "echo \\"{ENTRYPOINT_SAYS}\\"; exec \\"$@\\"", "entry"]"""
    return registry.image("entry", [entry, 'CMD ["true"]', "USER 4321:4321", "WORKDIR /var/tmp"])


def with_torch(registry: Registry) -> str:
    """Debian with a C++ compiler, and the PyTorch and NumPy that the tests have, for the same Python; 1.1 GB."""
    require(sys.version_info[:2] == (3, 11), "Python 3.11, which the image has, for its PyTorch")
    return registry.layered(_with_compiler(registry), "torch", _torch_files)


def _with_compiler(registry: Registry) -> str:
    """What torch.compile needs, of Debian."""
    files = _apt_settings() if offline() else {"apt.conf": ""}
    steps = [
        "export APT_CONFIG=/tmp/apt/apt.conf DEBIAN_FRONTEND=noninteractive",
        "apt-get -qq update",
        "apt-get -qq install -y --no-install-recommends g++ libpython3.11-dev",
        "rm -rf /tmp/apt /var/lib/apt/lists/* /var/cache/apt/*",
        "rm -f /usr/bin/*lto-dump* /usr/lib/gcc/*/*/lto1 /usr/lib/gcc/*/*/lib?san* /usr/lib/*/lib?san*",
    ]
    lines = [f"COPY {' '.join(files)} /tmp/apt/", f"RUN {' && '.join(steps)}", f"ENV PYTHONPATH=/{PACKAGES}"]
    return registry.image("torch-compiler", lines, files)


def _apt_settings() -> dict[str, str]:
    """This machine's own sources, proxy and certificates, none of which the image keeps: our base has none."""
    targets = ["apt-get", "indextargets", "--format", "deb $(REPO_URI) $(CODENAME) $(COMPONENT)"]
    known = run([*targets, "Created-By: Packages", "Origin: Debian"]).splitlines()
    sources = sorted({line for line in known if line.split()[2].startswith(SUITE)})
    require(bool(sources), f"apt's sources of Debian {SUITE}: apt-get update")
    own = [
        run(["apt-config", "dump", "Acquire::http::Proxy", "Acquire::https::Proxy"]),
        'Acquire::https::CaInfo "/tmp/apt/ca.crt";',
        'Dir::Etc::sourcelist "/tmp/apt/sources.list";',
    ]
    certificates = Path("/etc/ssl/certs/ca-certificates.crt").read_text()
    return {"apt.conf": "\n".join([*own, ""]), "sources.list": "\n".join([*sources, ""]), "ca.crt": certificates}


def _torch_files() -> Iterator[tuple[str, Path]]:
    """The installed files of torch and NumPy and of what they need, without their tests and programs."""
    for found in _closure("torch", "numpy"):
        for file in found.files or ():
            if ".." in file.parts or "tests" in file.parts:
                continue
            if file.parts[:2] == ("torch", "test") or (
                file.parts[:2] == ("torch", "bin") and file.name != "torch_shm_manager"
            ):
                continue
            yield f"{PACKAGES}/{file}", Path(str(file.locate()))


def _closure(*names: str) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = distribution(name)
            needs = (Requirement(line) for line in found[name].requires or ())
            waiting += [
                need.name.lower() for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
            ]
    return list(found.values())
