"""The command as a process of its own: signals, pipes, terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service.cli.mingora_fake import TOKEN, FakePlatform, Seen

CLI = Path(__file__).parents[3] / "cli" / "mingora.py"
JOB = "job_00000001"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(platform: FakePlatform) -> Iterator[Start]:
    """Starts a command as its own process; its end is seen to."""
    started: list[subprocess.Popen[bytes]] = []

    def make(*argv: str, **options: int) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], "MINGORA_URL": platform.url, "MINGORA_TOKEN": TOKEN, "HOME": "/nonexistent"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([sys.executable, "-I", "-S", str(CLI), *argv], env=env, **pipes)  # type: ignore[call-overload]
        started.append(process)
        return process  # type: ignore[no-any-return]

    yield make
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.req("CLI-12")
@pytest.mark.parametrize("argv", [["wait", JOB], ["logs", JOB, "--follow"], ["events", JOB, "--follow"]])
def test_ctrl_c_detaches_with_130_and_cancels_nothing(platform: FakePlatform, start: Start, argv: list[str]) -> None:
    platform.add_job(state="running", attempt=1)
    platform.intervals = {"jobPollSeconds": 10, "maxWaitSeconds": 10}
    process = start(*argv)
    until(lambda: platform.asked("GET", f"/jobs/{JOB}.*"))
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert f"{JOB} goes on" in err.decode()
    assert b"Traceback" not in err
    assert platform.asked("POST", ".*") == []


@pytest.mark.req("CLI-9", "CLI-12")
def test_ctrl_c_while_uploading_keeps_what_was_sent(
    platform: FakePlatform, start: Start, project: Callable[..., Path]
) -> None:
    held = threading.Event()

    def hold_late_parts(seen: Seen) -> None:
        if seen.method == "PUT" and len(platform.asked("PUT", ".*")) > 4:
            held.wait(20)

    platform.before = hold_late_parts
    root = project(big=bytes(range(200)))
    process = start("submit", str(root), "--key", "my-key")
    until(lambda: len(platform.asked("PUT", ".*")) >= 5)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=10)
    held.set()
    assert process.returncode == 130
    assert "--key my-key" in err.decode()
    assert platform.jobs == {}
    done = start("submit", str(root), "--key", "my-key")
    assert done.wait(20) == 0
    assert [job["key"] for job in platform.jobs.values()] == ["my-key"]


@pytest.mark.req("CLI-12")
def test_a_reader_that_has_gone_is_no_traceback(platform: FakePlatform, start: Start) -> None:
    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, b"x" * 3_000_000, done=True)
    process = start("logs", JOB)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(20) == 1
    assert err == b""


@pytest.mark.req("CLI-12")
@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are Unix's")
def test_on_a_real_terminal_a_log_is_harmless_even_cut_inside_a_letter(platform: FakePlatform, start: Start) -> None:
    import pty

    platform.add_job(state="succeeded", attempt=1)
    platform.write_log(JOB, b"x" * (1024 * 1024 - 1) + "ü\x1b]0;t\x07\n".encode(), done=True)
    ours, theirs = pty.openpty()
    process = start("logs", JOB, stdout=theirs)
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
    except OSError:
        pass  # the other end has closed
    os.close(ours)
    assert process.wait(20) == 0
    assert seen.decode().endswith("xü\\x1b]0;t\\x07\r\n")


@pytest.mark.req("AUTH-3", "CLI-12")
def test_a_malformed_token_is_refused_without_being_shown(platform: FakePlatform) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "MINGORA_URL": platform.url,
        "MINGORA_TOKEN": "mgu_se\ncret",
        "HOME": "/nonexistent",
    }
    done = subprocess.run([sys.executable, str(CLI), "whoami"], env=env, capture_output=True, check=False)
    assert done.returncode == 3
    assert b"cret" not in done.stdout + done.stderr
    assert platform.seen == []
