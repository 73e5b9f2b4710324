"""Which GPU a container is granted, told without one: by a stub of NVIDIA's hook on an engine of the tests' own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker_images
import pytest
from docker_support import Registry
from docker_workers import Workers, docker_workers, end, left_by, says, submit
from second_engine import SecondEngine, first_on_path, image_inside, second_engine
from service.worker.fake_platform import FakePlatform, Job

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(120)]

INDEX = 1
# Docker has a hook of this name run before a container that was granted a GPU; it reads the container's environment.
HOOK = """#!/usr/bin/env python3
import json, sys
state = json.load(sys.stdin)
with open(state["bundle"] + "/config.json") as config, open({record!r}, "a") as record:
    record.write(json.dumps({{"id": state["id"], "env": json.load(config)["process"]["env"]}}) + "\\n")
"""
SMI = """#!/bin/sh
case $1 in
    --id=0 | --id=1) echo "GPU-mingora-test-${1#--id=}, Stub, 8192" ;;
    *) exit 6 ;;
esac
"""
GREEDY = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
SHOW = "env | grep -e NVIDIA -e CUDA | sort; ls /dev | grep nvidia; echo shown"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stubs, each called as the program that it stands for."""
    folder = tmp_path_factory.mktemp("programs")
    texts = {"nvidia-container-runtime-hook": HOOK.format(record=str(folder / "granted")), "nvidia-smi": SMI}
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "granted").touch()
    return folder


@pytest.fixture(scope="module")
def engine(registry: Registry, programs: Path) -> Iterator[tuple[SecondEngine, str]]:
    with (
        second_engine(programs=programs) as engine,
        image_inside(engine, registry, docker_images.plain(registry)) as image,
    ):
        yield engine, image


@pytest.fixture
def workers(engine: tuple[SecondEngine, str], programs: Path, tmp_path: Path) -> Iterator[Workers]:
    second, image = engine
    with docker_workers(tmp_path, image, {**second.env, "PATH": first_on_path(programs)}) as workers:
        yield workers
        workers.close()
        with contextlib.closing(docker.from_env(environment=dict(second.env))) as client:
            assert left_by(workers.root(), client) == []


def granted(programs: Path) -> list[dict[str, str]]:
    """The environment of each container that the hook was run for, in order."""
    found: list[Any] = [json.loads(line) for line in (programs / "granted").read_text().splitlines()]
    return [dict(item.split("=", 1) for item in grant["env"]) for grant in found]


def of(programs: Path, job: Job) -> list[dict[str, str]]:
    return [env for env in granted(programs) if env.get("MINGORA_JOB_ID") == job.id]


@pytest.mark.req("WORK-7", "JOB-6")
@pytest.mark.parametrize("env", [{}, GREEDY], ids=["modest", "greedy"])
def test_a_job_is_granted_the_worker_s_gpu_or_none_whatever_it_asks_for(
    platform: FakePlatform, workers: Workers, programs: Path, env: dict[str, str]
) -> None:
    (programs / "granted").write_text("")
    workers.waiting(platform, "--gpu-index", str(INDEX))
    (node,) = platform.nodes.values()
    assert node["gpu"]["uuid"] == f"GPU-mingora-test-{INDEX}"
    with_gpu = submit(platform, SHOW, resources={"gpu": 1}, env=env)
    without = submit(platform, SHOW, env=env)
    assert end(platform, with_gpu) == ("succeeded", None, 0)
    assert end(platform, without) == ("succeeded", None, 0)
    (grant,) = of(programs, with_gpu)
    assert grant["NVIDIA_VISIBLE_DEVICES"] == str(INDEX)
    assert grant["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert of(programs, without) == []
    assert {grant["NVIDIA_VISIBLE_DEVICES"] for grant in granted(programs)} == {str(INDEX)}
    seen, unseen = with_gpu.lease.log.decode().splitlines(), without.lease.log.decode().splitlines()
    assert f"NVIDIA_VISIBLE_DEVICES={INDEX}" in seen and "CUDA_VISIBLE_DEVICES=0" in seen
    assert "NVIDIA_VISIBLE_DEVICES=void" in unseen and "CUDA_VISIBLE_DEVICES=" in unseen
    assert not [line for line in seen + unseen if "all" in line or "0,1" in line]


@pytest.mark.req("WORK-7", "JOB-6", "JOB-7")
def test_a_killed_worker_s_gpu_is_free_for_its_next_start(
    platform: FakePlatform, workers: Workers, programs: Path
) -> None:
    gpu = ("--gpu-index", str(INDEX))
    worker = workers.waiting(platform, *gpu)
    job = submit(platform, "echo begun; sleep 600", resources={"gpu": 1})
    says(platform, job)
    other = workers.start(platform, *gpu, root="other")
    assert other.wait() == 1 and "uses GPU 1" in other.named("error")[0]["message"]
    worker.kill()
    workers.waiting(platform, *gpu)
    assert end(platform, job) == ("failed", "worker_stopped", None)
    after = submit(platform, "echo again", resources={"gpu": 1})
    assert end(platform, after) == ("succeeded", None, 0)
    assert len(of(programs, after)) == 1


@pytest.mark.req("WORK-7")
def test_an_engine_without_nvidia_s_tools_offers_no_gpu(
    registry: Registry, platform: FakePlatform, programs: Path, tmp_path: Path
) -> None:
    image = registry.pull(docker_images.plain(registry))
    with docker_workers(tmp_path, image, {"PATH": first_on_path(programs)}) as workers:
        worker = workers.start(platform, "--gpu-index", str(INDEX))
        assert worker.wait() == 1
    (told,) = worker.named("error")
    assert "--gpu-index 1" in told["message"] and "NVIDIA Container Toolkit" in told["hint"]
    assert platform.nodes == {}
