"""What a container uses is read from the kernel's files, of either version of control groups, and of no stranger's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mingora_worker.runtimes.docker import cgroup
from mingora_worker.runtimes.docker.cgroup import Cgroup, Reading

ID = "0123456789abcdef" * 4


def files(folder: Path, contents: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text)


@pytest.fixture
def group_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Cgroup | None]:
    """The group of a process whose list in /proc is the text that is given."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)

    def of(listed: str) -> Cgroup | None:
        monkeypatch.setattr(cgroup, "_listed", lambda _pid: listed.splitlines())
        return Cgroup.of(1, ID)

    return of


@pytest.mark.req("WORK-4", "WORK-7")
def test_version_1(tmp_path: Path, group_of: Callable[[str], Cgroup | None]) -> None:
    memory = {"memory.usage_in_bytes": "5000\n", "memory.stat": "cache 3000\ntotal_inactive_file 2000\n"}
    files(
        tmp_path / "memory/docker" / ID,
        memory | {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"},
    )
    files(tmp_path / "cpuacct/docker" / ID, {"cpuacct.usage": "1500000000\n"})
    found = group_of(f"9:memory:/docker/{ID}\n4:cpu,cpuacct:/docker/{ID}\n0::/elsewhere\n")
    assert found is not None
    assert found.read() == Reading(cpu_seconds=1.5, memory=3000, killed=True)


@pytest.mark.req("WORK-4", "WORK-7")
def test_version_2(tmp_path: Path, group_of: Callable[[str], Cgroup | None]) -> None:
    group = tmp_path / f"system.slice/docker-{ID}.scope"
    files(group, {
        "memory.current": "5000\n", "memory.stat": "anon 1\ninactive_file 1000\n",
        "memory.events": "oom 0\noom_kill 0\n", "cpu.stat": "usage_usec 250000\nuser_usec 1\n",
    })  # fmt: skip
    found = group_of(f"0::/system.slice/docker-{ID}.scope\n")
    assert found is not None
    assert found.read() == Reading(cpu_seconds=0.25, memory=4000, killed=False)
    for file in group.iterdir():
        file.unlink()
    assert found.read() is None  # the container has ended


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize("listed", ["", "0::/user.slice\n", "9:memory:/docker/another\n4:cpuacct:/docker/another\n"])
def test_a_process_of_that_number_in_another_namespace_isnt_the_containers(
    listed: str, group_of: Callable[[str], Cgroup | None]
) -> None:
    assert group_of(listed) is None


@pytest.mark.req("WORK-7")
def test_this_process_is_in_no_container_of_that_name() -> None:
    assert Cgroup.of(os.getpid(), ID) is None
    assert Cgroup.of(2**30, ID) is None
