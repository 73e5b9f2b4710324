"""Hostile jobs on a real engine, in the runtime that workers have: each comes to the end that it has to come to."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Sequence

import docker_runtime
import pytest
from docker_runtime import Ran, run, unfriendly
from docker_support import Registry
from hostile_jobs import SUCCEEDED, Job
from hostile_jobs.ends import ENDS, EVERY_BYTE
from hostile_jobs.floods import FLOODS, OUTPUT_FLOODS
from hostile_jobs.probes import PROBES, SECRET, SECRET_NAME, SOCKET, Probe, answers
from hostile_jobs.tricks import TRICKS, WORKSHOP, Trick

from mingora_worker.runtimes.docker.output_tmpfs import TmpfsOutput
from mingora_worker.runtimes.docker.runtime import DockerRuntime

pytestmark = [
    pytest.mark.engine("docker"),
    pytest.mark.xdist_group("docker-hostile"),  # beside others, but with one runtime for all of them
    pytest.mark.timeout(300),
    pytest.mark.req("WORK-7"),
]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[DockerRuntime]:
    with docker_runtime.ready(tmp_path_factory.mktemp("hostile") / "root", unfriendly(registry)) as made:
        yield made


@pytest.mark.parametrize("job", FLOODS, ids=lambda job: job.name)
def test_it_gets_no_more_than_its_share(runtime: DockerRuntime, job: Job) -> None:
    job.check(job.run_until_told(runtime))


@pytest.mark.parametrize("job", ENDS, ids=lambda job: job.name)
def test_its_end_is_told_as_it_was(runtime: DockerRuntime, job: Job) -> None:
    job.check(job.run(runtime))


def test_every_byte_of_its_output_arrives(runtime: DockerRuntime) -> None:
    job = next(job for job in ENDS if job.name == "every byte")
    assert job.run(runtime).log == EVERY_BYTE


# -- what it asks ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host_port() -> Iterator[int]:
    """Where services of the host wait for whoever reaches them."""
    with contextlib.ExitStack() as held:
        service = held.enter_context(socket.create_server(("", 0)))
        port = int(service.getsockname()[1])
        local = held.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(f"\0{SOCKET}{port}")
        local.listen()
        yield port


@pytest.fixture(scope="module")
def said(runtime: DockerRuntime, tmp_path_factory: pytest.TempPathFactory, host_port: int) -> Iterator[dict[str, str]]:
    """What every probe was answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_NAME, SECRET)
        found = answers(runtime, PROBES, tmp_path_factory.mktemp("data"), host_port)
    yield {probe.name: answer for probe, answer in zip(PROBES, found, strict=True)}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_it_is_refused(said: dict[str, str], probe: Probe) -> None:
    probe.check(said[probe.name])


# -- what it leaves --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["the best", "tmpfs"])
def left(request: pytest.FixtureRequest, runtime: DockerRuntime) -> Ran:
    """What came of all the tricks, with the best kind of output that the machine allows, and with the next one."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tmpfs":
            patch.setattr(runtime, "_make", TmpfsOutput)
        return WORKSHOP.run(runtime)


def refusals(left: Ran, *tricks: Trick) -> list[str]:
    """What is said of the tricks. The engine's archive, by which a tmpfs is read, leaves sockets out."""
    expected = sorted(text for trick in tricks for text in trick.refused)
    return [text for text in expected if not text.startswith("socket:") or text in left.refused]


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.name)
def test_only_plain_files_are_taken(left: Ran, trick: Trick) -> None:
    assert {path: left.results.get(path) for path in trick.kept} == trick.kept
    assert [text for text in refusals(left, trick) if text not in left.refused] == []


def test_nothing_else_is_taken(left: Ran) -> None:
    assert left.end == SUCCEEDED
    assert left.text == ""
    assert set(left.results) == {path for trick in TRICKS for path in trick.kept}
    assert sorted(left.refused) == refusals(left, *TRICKS)


@pytest.mark.parametrize("job", OUTPUT_FLOODS, ids=lambda job: job.name)
def test_a_tmpfs_isnt_overfilled_either(runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    monkeypatch.setattr(runtime, "_make", TmpfsOutput)
    job.check(job.run(runtime))


# -- what it is started with -----------------------------------------------------------------------------------------

STARTS: Sequence[tuple[str, list[str], dict[str, str], tuple[str, int | None, int | None], str]] = (
    ("no such command", ["nowhere"], {}, ("command_not_found", 127, None), "mingora: .*nowhere: not found\n"),
    ("no program", ["/etc/passwd"], {}, ("command_not_found", 126, None), "mingora: .*: Permission denied\n"),
    ("a folder", ["/etc"], {}, ("command_not_found", 126, None), "mingora: .*: Permission denied\n"),
    ("an option of the shell", ["-c", "true"], {}, ("command_not_found", 127, None), "mingora: .*-c: not found\n"),
    ("a shell's words", ["echo", "$(id)", ";", "true", "&&", "`id`"], {}, SUCCEEDED,
        re.escape("$(id) ; true && `id`\n")),
    ("a library before all others", ["true"], {"LD_PRELOAD": "/nowhere.so"}, SUCCEEDED, "ERROR: ld.so: .*ignored.\n"),
    ("a start file for shells", ["sh", "-c", "echo said"], {"ENV": "/mingora/project/evil", "BASH_ENV": "/evil"},
        SUCCEEDED, "said\n"),
    ("no place for programs", ["/bin/echo", "said"], {"PATH": "/nowhere"}, SUCCEEDED, "said\n"),
    ("separators", ["sh", "-c", "echo \"$X\""], {"X": "a\nb\tc'\"\\", "IFS": "/"}, SUCCEEDED,
        re.escape("a\nb\tc'\"\\\n")),
    ("init's own names", ["sh", "-c", "kill -9 $$"], {"TINI_SUBREAPER": "1", "TINI_VERBOSITY": "3"},
        ("signal", None, 9), ""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "command", "env", "end", "says"), STARTS, ids=[start[0] for start in STARTS])
def test_how_it_is_started_changes_nothing(
    runtime: DockerRuntime, name: str, command: list[str], env: dict[str, str], end: object, says: str
) -> None:
    ran = run(runtime, command, env=env)
    assert ran.end == end, ran.outcome.message
    assert re.fullmatch(says, ran.text), ran.text
    assert ran.left == []


def test_words_that_no_kernel_takes_are_told(runtime: DockerRuntime) -> None:
    ran = run(runtime, ["echo", "x" * 200_000])
    assert ran.end[0] == "command_not_found" and "too long" in ran.outcome.message, ran.outcome.message


def test_a_file_in_the_place_of_results_is_told(runtime: DockerRuntime) -> None:
    ran = run(runtime, ["true"], files={"results": "a file"})
    assert ran.end[0] == "worker_error" and ran.outcome.message == "The project's own results is no folder."
