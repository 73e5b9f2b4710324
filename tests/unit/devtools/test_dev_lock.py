"""requirements/: the pinned files serve every Python and system the platform runs on, not only their maker's."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILES = Path(__file__).parents[3] / "requirements"
# 3.11.2 is Debian 12's: `--require-hashes` refuses a package that only it needs and that isn't pinned.
PYTHONS = ("3.11.0", "3.11.2", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
SYSTEMS = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))


def pinned(name: str) -> set[str]:
    return {canonicalize_name(match) for match in re.findall(r"^([A-Za-z0-9._-]+)==", (FILES / name).read_text(), re.M)}


@pytest.mark.parametrize("name", ["services.txt", "dev.txt", "worker.txt"])
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("platform", "system", "machine"), SYSTEMS)
def test_whatever_a_pinned_package_needs_is_pinned(
    name: str, python: str, platform: str, system: str, machine: str
) -> None:
    environment = {
        "python_full_version": python, "python_version": ".".join(python.split(".")[:2]), "sys_platform": platform,
        "platform_system": system, "platform_machine": machine, "os_name": "posix", "extra": "",
    }  # fmt: skip
    # torch comes by a command of its own: which of its builds fits differs between machines.
    packages = pinned(name) | (pinned("torch.txt") if name == "dev.txt" else set())
    needed = {
        canonicalize_name(need.name)
        for package in packages
        for need in map(Requirement, _requires(package))
        if need.marker is None or need.marker.evaluate(environment)
    }
    assert needed <= packages


def test_the_worker_s_image_has_the_versions_that_are_tested() -> None:
    lines = [re.findall(r"^\S+==\S+", (FILES / name).read_text(), re.M) for name in ("worker.txt", "dev.txt")]
    assert set(lines[0]) <= set(lines[1])


def _requires(package: str) -> list[str]:
    try:
        return requires(package) or []
    except PackageNotFoundError:  # pinned for another system
        return []
