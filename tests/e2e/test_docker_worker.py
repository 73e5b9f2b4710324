"""The worker's program with --docker-image on a real engine: what it offers, and every end that a job can have."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker_support import Registry
from docker_workers import Workers, containers, docker_workers, end, fake_platform, left_by, python, says, submit
from e2e_support import prompt
from service.worker.fake_platform import FakePlatform
from service.worker.worker_process import WorkerProcess

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("docker"), pytest.mark.timeout(120)]

NO_ENGINE = "unix:///nonexistent/mingora.sock"
# An engine that takes a limit and doesn't keep it.
LOOSE = "from mingora_worker.runtimes.docker import settings; settings.HARDENINGS['pids'] = lambda box: {}"
NO_PACKAGE = "sys.modules['docker'] = None"
EATER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytearray(1 << 30)']); print('outlived')"
SMALL_OUTPUT = "from mingora_worker.runtimes.docker import limits; limits.MOST_OUTPUT_BYTES = 16 << 20"


REFUSALS = pytest.mark.parametrize(
    ("changed", "env", "reason"),
    [
        pytest.param(LOOSE, {}, "limit of processes", id="canary"),
        pytest.param("", {"DOCKER_HOST": NO_ENGINE}, "No container engine answers", id="engine"),
        pytest.param(NO_PACKAGE, {}, "Python package docker", id="package"),
    ],
)


class Scene:
    """One worker, for jobs one after another."""

    def __init__(self, platform: FakePlatform, worker: WorkerProcess, root: Path) -> None:
        self.platform, self.worker, self.root = platform, worker, root


@pytest.fixture(scope="module")
def lasting(image: str, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "data").mkdir()
    (folder / "data" / "rows.txt").write_text("one\ntwo\n")
    with fake_platform() as platform, docker_workers(folder, image) as workers:
        data = ("--data", f"SET={folder / 'data'}", "--data", f"OTHER={folder / 'home'}")
        worker = workers.waiting(
            platform, *data, "--allow-cluster-network", "--network-group", "lab", changed=SMALL_OUTPUT
        )
        yield Scene(platform, worker, workers.root())
        assert worker.process.poll() is None
        workers.close()
        assert left_by(workers.root(), client) == []


@pytest.fixture
def scene(lasting: Scene) -> Scene:
    """The lasting worker, in the state every test finds it in."""
    lasting.platform.log_cap = 100 << 20
    return lasting


@pytest.fixture
def workers(image: str, client: docker.DockerClient, tmp_path: Path) -> Iterator[Workers]:
    with docker_workers(tmp_path, image) as workers:
        yield workers
        workers.close()
        assert left_by(workers.root(), client) == []


# -- what it offers --------------------------------------------------------------------------------------------


@pytest.mark.req("WORK-1", "WORK-7")
def test_a_worker_with_an_image_alone_takes_docker_jobs_only(scene: Scene, image: str) -> None:
    (node,) = scene.platform.nodes.values()
    assert node["runtimes"] == ["docker"]
    assert node["imageDigest"] == image.partition("@")[2]
    assert node["isolation"]["image"] == image
    assert node["isolation"]["capabilities"] == "none" and node["isolation"]["quota"] in {"loop", "tmpfs", "watchdog"}
    native = scene.platform.submit(["true"])
    assert end(scene.platform, native)[:2] == ("failed", "worker_error")


@pytest.mark.req("WORK-7")
def test_an_image_that_somebody_removed_is_fetched_again(
    registry: Registry, client: docker.DockerClient, platform: FakePlatform, tmp_path: Path
) -> None:
    """A worker without it would take job after job, and lose them all."""
    own = registry.image("removed", ["LABEL whose=a-test"])
    with docker_workers(tmp_path, own) as workers:
        workers.waiting(platform)
        client.images.remove(own, force=True)
        assert end(platform, submit(platform, "echo here")) == ("succeeded", None, 0)


@pytest.mark.req("WORK-1", "WORK-7")
def test_both_options_together_run_both_kinds_of_jobs(platform: FakePlatform, workers: Workers) -> None:
    native = platform.submit(["sh", "-c", "ls /mingora"])
    contained = submit(platform, "ls -d /mingora")
    workers.start(platform, own_code=True)
    assert end(platform, contained)[0] == "succeeded"
    assert end(platform, native)[0] == "failed"
    (node,) = platform.nodes.values()
    assert node["runtimes"] == ["native", "docker"]
    assert native.lease.isolation is None
    assert contained.lease.isolation is not None
    assert (contained.lease.isolation["memoryMiB"], contained.lease.isolation["network"]) == (64, "none")


@pytest.mark.req("WORK-7")
@REFUSALS
def test_what_keeps_docker_jobs_out_is_told_and_leaves_native_jobs_in(
    platform: FakePlatform, workers: Workers, changed: str, env: dict[str, str], reason: str
) -> None:
    job = platform.submit(["true"])
    worker = workers.start(platform, "--once", own_code=True, changed=changed, env=env)
    assert worker.wait() == 0
    assert end(platform, job)[0] == "succeeded"
    (node,) = platform.nodes.values()
    assert (node["runtimes"], node["imageDigest"], node.get("isolation")) == (["native"], None, None)
    (told,) = worker.named("docker_refused")
    assert reason in told["message"] and told["hint"]


@pytest.mark.req("WORK-7")
@REFUSALS
def test_without_any_runtime_the_worker_ends_with_the_remedy(
    platform: FakePlatform, workers: Workers, changed: str, env: dict[str, str], reason: str
) -> None:
    worker = workers.start(platform, changed=changed, env=env)
    assert worker.wait() == (2 if changed == NO_PACKAGE else 1)
    assert platform.nodes == {}
    (told,) = worker.named("error")
    assert reason in told["message"] and told["hint"]


@pytest.mark.req("WORK-1", "WORK-7")
def test_an_image_that_is_not_there_is_told(
    platform: FakePlatform, tmp_path: Path, registry: Registry, client: docker.DockerClient
) -> None:
    with docker_workers(tmp_path, f"{registry.address}/plain@sha256:{'0' * 64}") as workers:
        worker = workers.start(platform)
        assert worker.wait() == 1
    (told,) = worker.named("error")
    assert "plain@sha256:000" in told["message"]
    assert left_by(workers.root(), client) == []


@pytest.mark.req("WORK-1", "WORK-7")
def test_check_says_what_docker_jobs_would_run_in(
    platform: FakePlatform, workers: Workers, image: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert workers.start(platform, "--check").wait() == 0
    said = capfd.readouterr().out
    assert f"Docker jobs: in {image} on engine " in said
    assert "native jobs: not allowed (--allow-own-code)" in said
    assert "PROBLEM" not in said


@pytest.mark.req("WORK-1", "WORK-7")
def test_check_says_why_no_docker_job_would_run(
    platform: FakePlatform, workers: Workers, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = workers.start(platform, "--check", changed=LOOSE)
    assert worker.wait() == 1
    said = capfd.readouterr().out
    assert "PROBLEM" in said and "limit of processes" in said + "".join(worker.other)
    assert platform.nodes == {}


# -- what a job sees -------------------------------------------------------------------------------------------


@pytest.mark.req("WORK-7", "JOB-7")
def test_results_log_and_usage_come_back_and_inputs_under_results_are_there(scene: Scene) -> None:
    code = """
import os, pathlib
results = pathlib.Path(os.environ["MINGORA_RESULTS"])
assert results.samefile("results"), results
print(pathlib.Path("code.txt").read_text(), (results / "before.txt").read_text())
(results / "deep").mkdir()
(results / "deep" / "after.bin").write_bytes(bytes(range(256)))
"""
    files = {"code.txt": b"code", "results/before.txt": b"before"}
    job = python(scene.platform, code, files)
    assert end(scene.platform, job) == ("succeeded", None, 0)
    assert bytes(job.lease.log) == b"code before\n"
    found = scene.platform.results(job)
    assert found == {"before.txt": b"before", "deep/after.bin": bytes(range(256))}
    assert scene.platform.report(job)["warnings"] == []
    assert job.lease.isolation is not None and job.lease.isolation["outputMiB"] == 16


@pytest.mark.req("WORK-7", "WORK-8")
def test_local_data_is_there_read_only_and_only_what_the_job_names(scene: Scene) -> None:
    job = submit(
        scene.platform,
        'cat "$MINGORA_DATA_SET/rows.txt"; touch "$MINGORA_DATA_SET/new" && echo written; ls /mingora/data; env',
        data=["SET"],
    )
    assert end(scene.platform, job)[0] == "succeeded"
    log = job.lease.log.decode()
    assert log.startswith("one\ntwo\n") and "Read-only file system" in log and "written" not in log
    assert "MINGORA_DATA_SET=/mingora/data/SET\n" in log and "OTHER" not in log


@pytest.mark.req("WORK-7")
def test_no_credential_of_the_platform_is_in_the_container(scene: Scene) -> None:
    code = """
import os, pathlib, sys
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in {"proc", "sys", "usr"}]
    for name in files:
        path = pathlib.Path(folder, name)
        if path.is_file() and path.stat().st_size < 1 << 20:
            try:
                sys.stdout.buffer.write(path.read_bytes())
            except OSError:
                pass
for process in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("environ", "cmdline", "mountinfo"):
        sys.stdout.buffer.write((process / name).read_bytes())
"""
    job = python(scene.platform, code, {"seen.txt": b"seen"})
    assert end(scene.platform, job)[0] == "succeeded"
    log = bytes(job.lease.log)
    assert b"seen" in log and b"MINGORA_JOB_ID=" in log
    secret = [scene.platform.user_token, *scene.platform.node_tokens, job.lease.token]
    assert [text for text in secret if text.encode() in log] == []
    assert b"MINGORA_TOKEN" not in log and scene.platform.url.encode() not in log


@pytest.mark.req("WORK-7")
def test_a_job_of_a_network_group_reaches_the_host_and_is_told_what_that_means(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')"
        grouped = python(scene.platform, code, resources={"networkGroup": "lab"})
        alone = python(scene.platform, code)
        assert end(scene.platform, grouped)[0] == "succeeded"
        assert end(scene.platform, alone) == ("failed", "exit_code", 1)
    assert grouped.lease.isolation is not None and grouped.lease.isolation["network"] == "host"
    assert len(grouped.lease.warnings) == 1 and "weaker" in grouped.lease.warnings[0]
    assert alone.lease.isolation is not None and alone.lease.isolation["network"] == "none"
    assert alone.lease.warnings == []


# -- how jobs end ----------------------------------------------------------------------------------------------


@pytest.mark.req("WORK-7", "JOB-7")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("exit 7", ("failed", "exit_code", 7), id="code"),
        pytest.param("exit 137", ("failed", "exit_code", 137), id="code-of-a-kill"),
        pytest.param("kill -9 $$", ("failed", "signal", 9), id="signal"),
        pytest.param("kill -SEGV $$", ("failed", "signal", 11), id="segv"),
    ],
)
def test_codes_and_signals_are_told_apart(scene: Scene, script: str, expected: tuple[str, str, int]) -> None:
    assert end(scene.platform, submit(scene.platform, script)) == expected


@pytest.mark.req("WORK-7", "JOB-7")
def test_a_child_killed_for_memory_is_a_warning_and_the_job_itself_a_failure(scene: Scene) -> None:
    for _again in range(2):  # Docker 20.10 doesn't tell one of 90 (docs/security.md)
        parent = python(scene.platform, EATER)
        assert end(scene.platform, parent) == ("succeeded", None, 0)
        warnings = scene.platform.report(parent)["warnings"]
        if warnings:
            break
    (warning,) = warnings
    assert "killed for memory" in warning and "128 MiB" in warning
    for _again in range(2):
        itself = python(scene.platform, "b = bytearray(1 << 30)")
        outcome, reason, _number = end(scene.platform, itself)
        if reason != "signal":
            break
    assert (outcome, reason) == ("failed", "memory_exceeded")
    assert scene.platform.report(itself)["usage"]["maxMemoryMiB"] == 128


@pytest.mark.req("WORK-7", "JOB-7")
def test_a_command_that_is_not_there_is_told(scene: Scene) -> None:
    missing = scene.platform.submit(["no-such-program"], runtime="docker")
    blunt = scene.platform.submit(["./blunt"], {"blunt": b"#!/bin/sh\n"}, runtime="docker")
    own = submit(scene.platform, "exit 127")
    assert end(scene.platform, missing) == ("failed", "command_not_found", 127)
    assert end(scene.platform, blunt) == ("failed", "command_not_found", 126)
    assert end(scene.platform, own) == ("failed", "exit_code", 127)


@pytest.mark.req("WORK-7", "JOB-7")
def test_a_job_past_its_time_is_ended(scene: Scene) -> None:
    job = submit(scene.platform, "echo part >results/part; sleep 60", timeoutSeconds=1)
    assert end(scene.platform, job)[:2] == ("failed", "timed_out")
    assert scene.platform.results(job) == {"part": b"part\n"}


@pytest.mark.req("WORK-7", "JOB-7")
def test_a_job_that_fills_its_output_is_told_so_and_keeps_what_fitted(scene: Scene) -> None:
    job = submit(scene.platform, "echo good >results/a; head -c 30M /dev/zero >results/b")
    assert end(scene.platform, job)[:2] == ("failed", "output_limit")
    assert scene.platform.results(job)["a"] == b"good\n"


@pytest.mark.req("WORK-6", "WORK-7", "JOB-7")
def test_a_log_flood_is_ended_and_the_log_exact_to_its_cap(scene: Scene) -> None:
    scene.platform.log_cap = 1 << 20
    job = submit(scene.platform, "yes mingora")
    assert end(scene.platform, job)[:2] == ("failed", "log_limit")
    assert bytes(job.lease.log) == (b"mingora\n" * (1 << 18))[: 1 << 20]
    assert job.lease.truncated


@pytest.mark.req("WORK-7", "WORK-4")
def test_a_cancelled_job_has_its_grace_and_may_end_by_itself(scene: Scene) -> None:
    script = "trap 'echo saved >results/saved; exit 5' TERM; echo begun; while :; do sleep 0.01; done"
    job = submit(scene.platform, script)
    says(scene.platform, job)
    scene.platform.cancel(job, grace=20.0)
    assert end(scene.platform, job) == ("cancelled", "cancelled", 5)
    assert scene.platform.results(job) == {"saved": b"saved\n"}


@pytest.mark.req("WORK-7", "WORK-4")
def test_a_cancelled_job_that_will_not_end_is_killed_after_its_grace(scene: Scene) -> None:
    job = submit(scene.platform, "trap '' TERM; echo begun; while :; do sleep 0.01; done")
    says(scene.platform, job)
    scene.platform.cancel(job, grace=0.5)
    began = time.monotonic()
    assert end(scene.platform, job) == ("cancelled", "cancelled", 9)
    assert 0.5 <= time.monotonic() - began < prompt(1.5)


@pytest.mark.req("WORK-7", "WORK-4")
def test_a_lost_lease_ends_the_container(scene: Scene, client: docker.DockerClient) -> None:
    job = submit(scene.platform, "trap '' TERM; echo begun; while :; do sleep 0.01; done")
    says(scene.platform, job)
    scene.platform.end_lease(job)
    scene.platform.wait(lambda: scene.worker.named("lease_lost"))
    after = submit(scene.platform, "true")  # no other job is claimed before nothing of this one is left
    assert end(scene.platform, after)[0] == "succeeded"
    assert job.lease.report is None
    assert not [name for name in containers(scene.root, client) if job.lease.id in name]


@pytest.mark.req("WORK-7", "WORK-4")
def test_a_stalled_reader_of_the_log_does_not_keep_a_cancelled_job_alive(
    platform: FakePlatform, workers: Workers, client: docker.DockerClient
) -> None:
    changed = """
import threading
from mingora_worker import attempt
from mingora_worker.logs import Spool
attempt.PIPE_SECONDS = 0.5
Spool.append = lambda self, data: threading.Event().wait()
"""
    workers.waiting(platform, changed=changed)
    job = submit(platform, "trap '' TERM; while :; do echo flood; done")
    platform.wait(lambda: bool(job.leases) and job.lease.started)
    (name,) = containers(workers.root(), client)
    platform.cancel(job, grace=0.5)
    began = time.monotonic()
    platform.wait(lambda: not client.api.inspect_container(name)["State"]["Running"])
    assert time.monotonic() - began < prompt(1.5)
    assert end(platform, job) == ("cancelled", "cancelled", 9)


@pytest.mark.req("WORK-7", "GRAD-7")
def test_training_that_exchanges_through_the_platform_is_refused_by_the_worker_too(scene: Scene) -> None:
    job = submit(scene.platform, "true", training={"algorithm": "gradient_sharded"})
    assert end(scene.platform, job)[:2] == ("failed", "worker_error")
    assert "no credential" in scene.platform.report(job)["reason"]["message"]
