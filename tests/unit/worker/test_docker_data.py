"""What `--data` must not show to a job in a container, and what such a job couldn't read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingora.errors import UsageProblem
from mingora_worker.runtimes.docker.data import refuse_dangerous, unreadable
from mingora_worker.runtimes.docker.user import User


@pytest.mark.req("WORK-7", "WORK-8")
@pytest.mark.parametrize("inside", ["", "run", "run/engine.sock", "root", "root/jobs", "link"])
def test_the_socket_and_the_workers_folder_are_never_data(tmp_path: Path, inside: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "root" / "jobs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    environ = {"DOCKER_HOST": f"unix://{tmp_path}/run/engine.sock"}
    with pytest.raises(UsageProblem, match="SET") as refused:
        refuse_dangerous({"SET": tmp_path / inside}, tmp_path / "root", environ)
    assert "another folder" in (refused.value.hint or "")


@pytest.mark.req("WORK-8")
def test_other_folders_are(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    refuse_dangerous({"SET": tmp_path / "set"}, tmp_path / "root", {})
    refuse_dangerous({"SET": tmp_path / "set"}, tmp_path / "root", {"DOCKER_HOST": "tcp://engine:2376"})
    with pytest.raises(UsageProblem):
        refuse_dangerous({"SET": Path("/var/run")}, tmp_path / "root", {})


@pytest.mark.req("WORK-8")
def test_data_that_the_containers_user_cant_read_is_told(tmp_path: Path) -> None:
    modes = {"OPEN": 0o755, "CLOSED": 0o700, "LIST": 0o744}
    for name, mode in modes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    data = {name: tmp_path / name for name in modes}
    assert unreadable(data, User(61_000, 61_000)) == ["CLOSED", "LIST"]
    import os

    assert unreadable(data, User(os.geteuid(), 0)) == []
