"""docs/operations.md, "Back up" and "Restore, and move": its commands, out of containers and into others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_compose import ComposeStack
from e2e_support import RunningStack, Served, User, environment, make_project

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]


def download(user: User, stack: Served, job_id: str, folder: Path) -> bytes:
    """A job's results from wherever the platform is now, by the token of before."""
    token = user.login_record()["token"]
    user.env |= {"MINGORA_URL": stack.url, "MINGORA_TOKEN": token, "MINGORA_CA_FILE": stack.ca_file or ""}
    user.run("download", job_id, "--output", str(folder))
    return (folder / "data.bin").read_bytes()


@pytest.mark.req("OPS-1", "OPS-2", "CLI-9")
def test_a_platform_moves_out_of_containers_and_into_others(
    compose_stack: ComposeStack,
    new_stack: Callable[..., RunningStack],
    new_user: Callable[[ComposeStack], User],
    tmp_path: Path,
) -> None:
    user, data = new_user(compose_stack), os.urandom(5 << 20)
    project = make_project(tmp_path / "copy", ["sh", "-c", "mkdir -p results; cp data.bin results/"])
    (project / "data.bin").write_bytes(data)
    job_id = user.submit(project)
    user.work_once()
    archive = tmp_path / "platform.mingora"
    compose_stack.pipe("exec", "-T", "blobstore", "mingora-admin", "export", "-", stdout=archive)

    embedded = new_stack()
    command = [sys.executable, "-m", "mingora_stack.admin", "--data", str(embedded.data), "import", str(archive)]
    subprocess.run(command, env=environment(), check=True, timeout=60)
    embedded.start()
    assert download(user, embedded, job_id, tmp_path / "embedded") == data

    again = tmp_path / "again.mingora"
    command[-2:] = ["export", str(again)]
    subprocess.run(command, env=environment(), check=True, timeout=60)
    twin = compose_stack.twin(tmp_path)
    try:
        twin.compose("up", "--detach", "--wait", "--no-build", "postgres", "redis", seconds=120)
        twin.pipe("run", "--rm", "-T", "blobstore", "mingora-admin", "import", "-", stdin=again)
        twin.up()
        assert download(user, twin, job_id, tmp_path / "contained") == data
    finally:
        twin.compose("down", "--volumes", "--timeout", "5", seconds=120)
