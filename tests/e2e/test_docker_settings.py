"""Each measure of a container's settings is there for something: taken away, a hostile job gets through."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import docker_runtime
import pytest
from docker.errors import APIError, NotFound
from docker.types import Ulimit
from docker_runtime import READY, Ran, run, unfriendly
from docker_support import Registry
from e2e_support import until
from hostile_jobs import SUCCEEDED, killed
from hostile_jobs.ends import ENDS
from hostile_jobs.floods import FLOODS
from hostile_jobs.probes import PROBES, answers

from mingora_worker.runtimes.docker import leftovers, settings
from mingora_worker.runtimes.docker.runtime import DockerRuntime
from mingora_worker.runtimes.docker.settings import HARDENINGS, Box

pytestmark = [
    pytest.mark.engine("docker"),
    pytest.mark.xdist_group("docker-settings"),  # beside others, but with one runtime for all of them
    pytest.mark.timeout(300),
    pytest.mark.req("WORK-7"),
]

JOBS = {job.name: job for job in (*FLOODS, *ENDS)}
ASKED = {probe.name: probe for probe in PROBES}


@dataclass(frozen=True)
class Gap:
    """What gets through without a measure: `job`, by its name, and what is seen of it then, a pattern.

    `instead`: the measure as an engine has it that was started with other defaults than usual. `also`: what has to go
    with it, as an engine takes the one only with the other.
    """

    job: str
    seen: str
    instead: Callable[[Box], dict[str, Any]] | None = None
    also: str = ""


GAPS = {
    "entrypoint": Gap("entry point", "True"),
    "healthcheck": Gap("health check", "True"),
    "user": Gap("its account", "True"),
    "init": Gap("it isn't PID 1", "False"),
    "read-only": Gap("write to /var/tmp/new", "None"),
    "network": Gap("interfaces", r"\['lo', 'eth0'\]"),
    "cgroupns": Gap("cgroup", r"\{.*'/[^']+.*\}", lambda _box: {"cgroupns": "host"}),
    "capabilities": Gap("capabilities", r"\{.*'0*[1-9a-f]+0*.*'.*\}"),
    "no-new-privileges": Gap("shadow by a set-uid program", "0"),
    "seccomp": Gap("traced by its parent", "0"),
    "memory": Gap("memory", "succeeded 0 None: survived 600\n", also="swap"),
    "oom-score": Gap("score for memory", "-?\\d{1,2}"),
    "cpu": Gap("its share of processors", "-.*|ValueError"),
    "pids": Gap("as many children as there may be", "succeeded 0 None: "),
    "tmp": Gap("bytes in /tmp", "succeeded 0 None: Read-only file system 0\n"),
    "shm": Gap("shared memory", "succeeded 0 None: No space left on device 64\n"),
    "nofile": Gap("open files", "succeeded 0 None: (?:Too many open files \\d+\n)?"),
    "core": Gap("limit of CORE", r"\(.*-1\)"),
    "fsize": Gap("a tebibyte of nothing", "succeeded 0 None: holes: is a huge file of almost nothing but holes"),
    "memlock": Gap("limit of MEMLOCK", r"\(65536, 65536\)", lambda _box: _ulimit("memlock", 65_536)),
    "msgqueue": Gap("message queues", "succeeded 0 None: "),
    "project": Gap("every byte", "exit_code 2 None: .*can't open file.*"),
    "output": Gap("output, and it goes on", "succeeded 0 None: Read-only file system\n"),
    "data": Gap("data is there", "ENOENT"),
    "log": Gap("lines of 16,384 bytes", "exit_code 2 None: "),
    "gpu": Gap("environment", ".*'NVIDIA_VISIBLE_DEVICES=all'.*"),
}


def _ulimit(name: str, most: int) -> dict[str, Any]:
    return {"ulimits": [Ulimit(name=name, soft=most, hard=most)]}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[DockerRuntime]:
    with docker_runtime.ready(tmp_path_factory.mktemp("settings") / "root", unfriendly(registry)) as made:
        yield made


Without = Callable[..., None]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Takes measures away from every container that is made then, or puts another in the place of the first."""

    def take(*names: str, instead: Callable[[Box], dict[str, Any]] | None = None) -> None:
        left = {name: measure for name, measure in HARDENINGS.items() if name not in names}
        monkeypatch.setattr(settings, "HARDENINGS", left if instead is None else {**left, names[0]: instead})

    return take


@pytest.mark.parametrize("name", GAPS)
def test_without_it_a_hostile_job_gets_through(
    runtime: DockerRuntime, without: Without, tmp_path: Path, name: str
) -> None:
    gap = GAPS[name]
    without(name, *gap.also.split(), instead=gap.instead)
    seen, check = _ran(runtime, gap.job) if gap.job in JOBS else _asked(runtime, gap.job, tmp_path / "data")
    with pytest.raises(AssertionError):
        check()
    assert re.fullmatch(gap.seen, seen, re.DOTALL), seen


def _ran(runtime: DockerRuntime, name: str) -> tuple[str, Callable[[], None]]:
    ran = JOBS[name].run(runtime)
    return f"{' '.join(map(str, ran.end))}: {ran.text}{' '.join(ran.refused)}", partial(JOBS[name].check, ran)


def _asked(runtime: DockerRuntime, name: str, data: Path) -> tuple[str, Callable[[], None]]:
    (said,) = answers(runtime, [ASKED[name]], data)
    return said, partial(ASKED[name].check, said)


# -- what only the engine tells --------------------------------------------------------------------------------------


def idle(runtime: DockerRuntime, look: Callable[[str], object]) -> Ran:
    """A job that does nothing while `look` gets the id of its container."""
    command = ["sh", "-c", f"echo {READY.decode().strip()}; sleep 60"]
    ran = run(runtime, command, grace=0.2, during=lambda running: look(running._id))  # type: ignore[attr-defined]
    assert ran.end in {killed(15, "cancelled"), killed(9, "cancelled")}
    return ran


def host_config(runtime: DockerRuntime) -> dict[str, Any]:
    """What the engine has of the settings of a running job."""
    found: dict[str, Any] = {}
    idle(runtime, lambda id: found.update(runtime._engine.client.api.inspect_container(id)["HostConfig"]))
    return found


def test_without_labels_what_a_killed_worker_left_isnt_found(runtime: DockerRuntime, without: Without) -> None:
    def removed() -> list[str]:
        names: list[str] = []
        command = ["sh", "-c", f"echo {READY.decode().strip()}; sleep 60"]

        def clear(running: Any) -> None:
            names.extend(leftovers.remove_all(runtime._engine, runtime._worker))

        run(runtime, command, grace=0.2, during=clear)
        return names

    assert [name.startswith("mingora-lease_") for name in removed()] == [True]
    without("labels")
    assert removed() == []


def test_without_swap_as_much_memory_again_may_be_swapped(runtime: DockerRuntime, without: Without) -> None:
    held = host_config(runtime)
    assert held["MemorySwap"] == held["Memory"] == docker_runtime.MEMORY_MIB << 20
    without("swap")
    assert host_config(runtime)["MemorySwap"] != held["Memory"]


def test_without_ipc_another_container_may_join_its_shared_memory(runtime: DockerRuntime, without: Without) -> None:
    """On an engine whose default is to share it, as engines had it before Docker 20."""

    def joined(id: str) -> bool:
        other = runtime._engine.client.containers.create(
            runtime._image, ["true"], ipc_mode=f"container:{id}", network_mode="none", labels=_labels(runtime)
        )
        try:
            other.start()
        except APIError as error:
            assert "non-shareable IPC" in str(error.explanation)
            return False
        finally:
            other.remove(force=True, v=True)
        return True

    found: list[bool] = []
    idle(runtime, lambda id: found.append(joined(id)))
    without("ipc", instead=lambda _box: {"ipc_mode": "shareable"})
    idle(runtime, lambda id: found.append(joined(id)))
    assert set(found[:1]) == {False}
    assert found[-1]


def test_without_userns_an_engine_that_maps_accounts_would_map_the_jobs(
    runtime: DockerRuntime, without: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project and the output belong to the account that the worker chose, by its number on the machine."""
    options = [*runtime._engine.info["SecurityOptions"], "name=userns"]
    monkeypatch.setitem(runtime._engine.info, "SecurityOptions", options)
    assert host_config(runtime)["UsernsMode"] == "host"
    without("userns")
    assert host_config(runtime)["UsernsMode"] == ""


def _labels(runtime: DockerRuntime) -> dict[str, str]:
    return {leftovers.WORKER: runtime._worker}


def test_without_log_the_engine_keeps_what_is_written_past_the_pipe(runtime: DockerRuntime, without: Without) -> None:
    assert host_config(runtime)["LogConfig"]["Type"] == "none"
    without("log", instead=lambda box: settings._bind(box.pipe, settings.PIPE) if box.pipe else {})
    assert host_config(runtime)["LogConfig"]["Type"] != "none"


def test_without_keep_nobody_could_ask_how_it_ended(runtime: DockerRuntime, without: Without) -> None:
    """What Docker does unless told otherwise."""

    def there(running: Any) -> bool:
        try:
            runtime._engine.client.api.inspect_container(running._id)
        except NotFound:
            return False
        return True

    found: list[bool] = []
    assert run(runtime, ["true"], after=lambda running: found.append(there(running))).end == SUCCEEDED
    assert found == [True]
    without("keep", instead=lambda _box: {"auto_remove": True})
    run(runtime, ["true"], after=lambda running: until(lambda: not there(running), 10, "its removal"))


SHOWN = {
    "labels": test_without_labels_what_a_killed_worker_left_isnt_found,
    "swap": test_without_swap_as_much_memory_again_may_be_swapped,
    "ipc": test_without_ipc_another_container_may_join_its_shared_memory,
    "keep": test_without_keep_nobody_could_ask_how_it_ended,
    "userns": test_without_userns_an_engine_that_maps_accounts_would_map_the_jobs,
}
"""The measures whose lack no job can tell from inside, and what shows it."""


def test_no_measure_is_left_out() -> None:
    assert sorted([*GAPS, *SHOWN]) == sorted(HARDENINGS)
