"""The start-up canary on a real engine: it takes no engine for good that doesn't hold, and no image unfit for jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker_images
import docker_runtime
import pytest
from docker_support import Registry

from mingora_worker.runtimes.docker import leftovers, output_loop, settings
from mingora_worker.runtimes.docker.engine import EngineProblem
from mingora_worker.runtimes.docker.runtime import DockerRuntime
from mingora_worker.runtimes.docker.settings import HARDENINGS, Box

pytestmark = [
    pytest.mark.engine("docker"),
    pytest.mark.xdist_group("docker-canary"),  # beside others, but with one runtime for all of them
    pytest.mark.timeout(300),
    pytest.mark.req("WORK-7"),
]

SWAPS = Path("/proc/swaps")
BREACHES = {
    "memory": "the memory limit",
    "pids": "the limit of processes",
    "network": "no network",
    "read-only": "the read-only root",
    "capabilities": "no capabilities",
    "no-new-privileges": "no new privileges",
    "seccomp": "the seccomp profile",
    "init": "the init process",
    "user": "the user",
    "output": "what a container writes doesn't arrive",
    "project": "The engine doesn't see the worker's folder",
}
"""What the canary says where an engine takes a measure and doesn't keep it."""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[DockerRuntime]:
    reference = docker_runtime.unfriendly(registry)
    with docker_runtime.unprepared(tmp_path_factory.mktemp("canary") / "root", reference) as made:
        yield made


@pytest.fixture
def ignores(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every container as an engine does that ignores some of the measures."""

    def ignore(*names: str) -> None:
        left = {name: measure for name, measure in HARDENINGS.items() if name not in names}
        monkeypatch.setattr(settings, "HARDENINGS", left)

    return ignore


def containers(runtime: DockerRuntime) -> list[str]:
    """What the engine has of this worker."""
    label = f"{leftovers.WORKER}={runtime._worker}"
    return [str(found.name) for found in runtime._engine.client.containers.list(all=True, filters={"label": label})]


def test_an_engine_that_holds_is_proved(runtime: DockerRuntime) -> None:
    runtime.prepare()
    assert runtime.profile["proved"] == "memory pids network root capabilities seccomp init"
    assert {type(value) for value in runtime.profile.values()} <= {str, bool, int}
    assert containers(runtime) == []
    assert not (runtime._root / "jobs" / "canary").exists()


@pytest.mark.parametrize("name", BREACHES)
def test_one_that_ignores_a_measure_is_refused_by_its_name(
    runtime: DockerRuntime, ignores: Callable[..., None], name: str
) -> None:
    # An engine takes a limit of memory and swap only with one of memory.
    ignores(*(["memory", "swap"] if name == "memory" else [name]))
    with pytest.raises(EngineProblem) as refused:
        runtime.prepare()
    assert BREACHES[name] in refused.value.message
    others = {text for other, text in BREACHES.items() if other != name}
    assert [text for text in others if text in refused.value.message] == []
    assert containers(runtime) == []


@pytest.mark.skipif(
    not SWAPS.exists() or len(SWAPS.read_text().splitlines()) < 2, reason="a machine without swap can't tell"
)
def test_one_that_lets_jobs_swap_is_refused(runtime: DockerRuntime, ignores: Callable[..., None]) -> None:
    ignores("swap")
    with pytest.raises(EngineProblem, match="the memory limit"):
        runtime.prepare()


def test_everything_that_doesnt_hold_is_said_at_once(runtime: DockerRuntime, ignores: Callable[..., None]) -> None:
    ignores("network", "seccomp", "init", "pids")
    with pytest.raises(EngineProblem) as refused:
        runtime.prepare()
    for name in ("network", "seccomp", "init", "pids"):
        assert BREACHES[name] in refused.value.message
    assert refused.value.hint


def test_an_engine_that_takes_any_profile_for_its_own_is_refused(
    runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filtering is on, but by another text than the one that was given."""

    def default(box: Box) -> dict[str, Any]:
        return {"security_opt": []}

    monkeypatch.setattr(settings, "HARDENINGS", {**HARDENINGS, "seccomp": default})
    with pytest.raises(EngineProblem, match="the seccomp profile"):
        runtime.prepare()


@pytest.mark.skipif(not docker_runtime.AS_ROOT, reason="only root mounts a loop image")
def test_an_output_without_a_limit_is_passed_over(runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    real = output_loop.image_bytes
    monkeypatch.setattr(output_loop, "image_bytes", lambda size, inodes: 2 * real(size, inodes))
    runtime.prepare()
    assert runtime.profile["quota"] == "tmpfs"


# -- images ----------------------------------------------------------------------------------------------------------


def refusal(root: Path, reference: str) -> str:
    """Why a worker doesn't start with the image."""
    with docker_runtime.unprepared(root, reference) as runtime, pytest.raises(EngineProblem) as refused:
        runtime.prepare()
    assert runtime.profile == {}
    return refused.value.message


def test_an_image_without_a_shell_is_refused(tmp_path: Path, registry: Registry) -> None:
    reference = registry.image("shell-less", ["RUN rm /bin/sh"])
    assert refusal(tmp_path / "root", reference).startswith("The image has no /bin/sh")


def test_an_image_without_tools_is_refused(tmp_path: Path, registry: Registry) -> None:
    reference = registry.image("tool-less", ["RUN rm /usr/bin/head /usr/bin/sleep"])
    assert refusal(tmp_path / "root", reference).startswith("The image has no head, sleep")


def test_an_image_with_volumes_is_refused(tmp_path: Path, registry: Registry) -> None:
    reference = docker_images.with_volume(registry)
    expected = f"{reference} declares volumes ({docker_images.VOLUME}): a job would write there past every limit."
    assert refusal(tmp_path / "root", reference) == expected


def test_an_image_that_nobody_has_is_refused(tmp_path: Path, registry: Registry) -> None:
    reference = f"{registry.address}/unfriendly@sha256:{'0' * 64}"
    assert refusal(tmp_path / "root", reference).startswith(f"{reference} can't be pulled: ")


def test_a_repository_that_nobody_has_is_refused(tmp_path: Path, registry: Registry) -> None:
    reference = f"{registry.address}/nobodys@sha256:{'0' * 64}"
    assert refusal(tmp_path / "root", reference).startswith(f"{reference} can't be pulled: ")
