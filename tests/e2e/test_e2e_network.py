"""A network that breaks, and many at once: nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_proxy import CuttingProxy
from e2e_support import RunningStack, User, make_project, python_project, until

FILES = 30
LOG_BLOCKS, LOG_BLOCK = 100, 200_000


@pytest.fixture
def proxy(stack: RunningStack) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(int(stack.url.rpartition(":")[2]), seed=7)
    yield proxy
    proxy.close()


def insist(user: User, *words: str) -> bytes:
    """Run a command again until the network lets it through, as a person would; its output."""
    for _try in range(10):
        process = user.start(*words)
        out, err = process.communicate(timeout=60)
        assert b"Traceback" not in err + out
        if process.returncode == 0:
            return out
        assert process.returncode in {1, 7}, err
    raise AssertionError(f"{words} never went through")


@pytest.mark.req("CLI-8", "CLI-9", "CLI-10", "WORK-6", "JOB-4")
def test_connections_cut_at_any_byte_change_nothing(
    user: User, far_user: User, proxy: CuttingProxy, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "cut", ["sh", "-c", "mkdir -p results; cp file* results; cat file*"])
    data = [random.Random(number).randbytes((10, 3000, 90_000)[number % 3]) for number in range(FILES)]
    for number, content in enumerate(data):
        (project / f"file{number:02}").write_bytes(content)
    proxy.share = 0.25
    job_id = json.loads(insist(far_user, "submit", str(project), "--key", "cut", "--json"))["job"]["id"]
    far_user.worker()
    user.run("wait", job_id, "--timeout", "90")
    assert user.job(job_id)["attempt"] == 1
    assert insist(far_user, "logs", job_id) == b"".join(data)
    insist(far_user, "download", job_id, "--output", str(tmp_path / "out"))
    assert [(tmp_path / "out" / f"file{number:02}").read_bytes() for number in range(FILES)] == data
    assert len(list((tmp_path / "out").iterdir())) == FILES  # and no partial file
    again = json.loads(insist(far_user, "submit", str(project), "--key", "cut", "--json"))["job"]["id"]
    assert again == job_id
    assert proxy.cuts > 5


@pytest.mark.req("CLI-8", "JOB-1")
def test_the_same_key_from_many_processes_at_once_is_one_job(user: User, tmp_path: Path) -> None:
    project = make_project(tmp_path / "same", ["true"])
    for number in range(10):
        (project / f"file{number}").write_bytes(random.Random(number).randbytes(20_000))
    started = [user.start("submit", str(project), "--key", "one", "--json") for _ in range(12)]
    said: list[dict[str, Any]] = []
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(json.loads(out))
    assert len({answer["job"]["id"] for answer in said}) == 1


@pytest.mark.req("WORK-6", "OPS-2")
def test_a_binary_log_is_whole_though_the_server_is_killed_three_times(
    breakable_stack: RunningStack, new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    code = f"""
import random, sys, time
source = random.Random(3)
for _ in range({LOG_BLOCKS}):
    sys.stdout.buffer.write(source.randbytes({LOG_BLOCK}))
    sys.stdout.flush()
    time.sleep(0.03)
"""
    user = new_user(breakable_stack)
    job_id = user.submit(python_project(tmp_path / "binary", code))
    user.worker()
    for number, role in enumerate(("server worker", "server", "server worker"), 1):
        until(lambda number=number: logged(user, job_id) > number * 3_000_000, 60, "the log grows")  # type: ignore[misc]
        breakable_stack.process_of(role).kill()
    user.run("wait", job_id, "--timeout", "90")
    source = random.Random(3)
    expected = b"".join(source.randbytes(LOG_BLOCK) for _ in range(LOG_BLOCKS))
    assert user.run("logs", job_id).stdout == expected


def logged(user: User, job_id: str) -> int:
    """How many bytes of the log the platform has."""
    ranks = user.job(job_id)["ranks"]
    return int(ranks[0]["logBytes"]) if ranks else 0
