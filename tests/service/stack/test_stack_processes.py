"""Supervision with real processes: restart, clean stop, no child outlives its supervisor, leftovers are ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mingora_stack import launch, leftovers, settings, valkey
from mingora_stack.childlogs import ChildLogs
from mingora_stack.errors import StackError
from mingora_stack.folder import DataFolder
from mingora_stack.listen import listen
from mingora_stack.ready import takes_connections
from mingora_stack.supervisor import Program, Supervisor

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it didn't come true in time"
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    yield folder
    leftovers.end(folder.mark())


@pytest.fixture
def supervisor(folder: DataFolder) -> Iterator[Supervisor]:
    supervisor = Supervisor(ChildLogs(folder.logs, verbose=False).follow, lambda _text: None)
    yield supervisor
    supervisor.stop()


def program(folder: DataFolder, name: str, *command: str) -> Program:
    return Program(name, command or SLEEP, settings.surroundings(folder))


@pytest.mark.req("OPS-2")
def test_a_killed_program_is_started_again(folder: DataFolder, supervisor: Supervisor) -> None:
    supervisor.start(program(folder, "one"))
    until(lambda: len(leftovers.marked(folder.mark())) == 1)
    (first,) = leftovers.marked(folder.mark())
    first.kill()

    def other_runs() -> bool:
        supervisor.step()
        return [process.pid for process in leftovers.marked(folder.mark())] not in ([], [first.pid])

    until(other_runs)
    assert supervisor.failures("one") == 1


@pytest.mark.req("OPS-2")
def test_a_program_that_dies_at_once_is_started_ever_more_slowly(folder: DataFolder, supervisor: Supervisor) -> None:
    supervisor.start(program(folder, "bad", sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"))

    def failed_twice() -> bool:
        supervisor.step()
        return supervisor.failures("bad") >= 2

    until(failed_twice)
    until(lambda: "no such luck" in ChildLogs(folder.logs, verbose=False).tail("bad"))
    wait = supervisor.step()
    assert wait is not None
    assert 0 < wait <= 0.2


@pytest.mark.req("OPS-2")
def test_a_program_that_cant_be_started_now_is_started_later(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    supervisor = Supervisor(ChildLogs(folder.logs, verbose=False).follow, said.append)
    spawn, failures = supervisor._spawn, iter([OSError(11, "Resource temporarily unavailable")])

    def scarce(program: Program) -> subprocess.Popen[bytes]:
        for failure in failures:
            raise failure
        return spawn(program)

    supervisor.start(program(folder, "one"))
    try:
        until(lambda: len(leftovers.marked(folder.mark())) == 1)
        monkeypatch.setattr(supervisor, "_spawn", scarce)
        leftovers.marked(folder.mark())[0].kill()

        def told_twice() -> bool:
            supervisor.step()
            return len(said) == 2

        until(told_twice)
        assert "was ended by SIGKILL" in said[0]
        assert "can't be started: Resource temporarily unavailable" in said[1]

        def runs_again() -> bool:
            supervisor.step()
            return len(leftovers.marked(folder.mark())) == 1

        until(runs_again)
    finally:
        supervisor.stop()


@pytest.mark.req("OPS-2")
def test_stop_ends_a_program_that_ignores_the_request(
    folder: DataFolder, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mingora_stack.supervisor.STOP_SECONDS", 0.3)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    supervisor.start(program(folder, "first"))
    supervisor.start(program(folder, "stubborn", sys.executable, "-c", stubborn))
    until(lambda: "up" in ChildLogs(folder.logs, verbose=False).tail("stubborn"))
    supervisor.stop()
    assert leftovers.marked(folder.mark()) == []


@pytest.mark.req("OPS-2")
def test_children_start_with_no_signal_blocked(folder: DataFolder, supervisor: Supervisor) -> None:
    show = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), flush=True)"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        supervisor.start(program(folder, "mask", sys.executable, "-c", show))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    logs = ChildLogs(folder.logs, verbose=False)
    until(lambda: bool(logs.tail("mask")))
    assert logs.tail("mask") == "[]"


@pytest.mark.req("OPS-2")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends children with their parent on Linux")
def test_a_child_dies_with_a_killed_supervisor(folder: DataFolder) -> None:
    code = f"""
        import os, subprocess, sys, time
        subprocess.Popen([sys.executable, "-I", "-S", {launch.__file__!r}, str(os.getpid()), *{SLEEP!r}])
        time.sleep(60)
    """
    environ = settings.surroundings(folder)
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environ, stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(leftovers.marked(folder.mark())) == 2)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not leftovers.marked(folder.mark()))


@pytest.mark.req("OPS-2")
def test_only_processes_with_the_folders_mark_are_ended(folder: DataFolder) -> None:
    environ = {name: value for name, value in os.environ.items() if name != leftovers.MARK}
    ours = subprocess.Popen(SLEEP, env=environ | {leftovers.MARK: folder.mark()}, stdout=subprocess.DEVNULL)
    others = subprocess.Popen(SLEEP, env=environ | {leftovers.MARK: "of another folder"}, stdout=subprocess.DEVNULL)
    unmarked = subprocess.Popen(SLEEP, env=environ, stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(leftovers.marked(folder.mark())) == 1)
        assert leftovers.end(folder.mark()) == 1
        assert not psutil.pid_exists(ours.pid)
        assert others.poll() is None
        assert unmarked.poll() is None
    finally:
        for process in (ours, others, unmarked):
            process.kill()
            process.wait()


@pytest.mark.req("OPS-2")
def test_valkey_serves_its_socket_keeps_its_mark_and_opens_no_port(folder: DataFolder, supervisor: Supervisor) -> None:
    path = folder.socket("valkey.sock")
    supervisor.start(program(folder, "valkey", *valkey.command(path, folder.run)))
    until(lambda: takes_connections(path))
    assert path.stat().st_mode & 0o777 == 0o700
    (process,) = leftovers.marked(folder.mark())
    assert [
        connection for connection in process.net_connections("inet") if connection.status == psutil.CONN_LISTEN
    ] == []


@pytest.mark.req("OPS-2")
def test_a_taken_port_is_said_to_be_taken() -> None:
    (first,) = listen(0, everywhere=False)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(StackError, match=f"Port {port} is taken"):
            listen(port, everywhere=False)


@pytest.mark.req("AUTH-5")
def test_without_a_host_only_loopback_listens() -> None:
    (only,) = listen(0, everywhere=False)
    with only:
        assert only.getsockname()[0] == "127.0.0.1"


@pytest.mark.req("OPS-2")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are taken over on Linux")
def test_an_accepted_connection_takes_over_the_limits_on_stalling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mingora_common.serving.STALL_SECONDS", 1)
    (listener,) = listen(0, everywhere=False)
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            accepted.setblocking(True)
            started = time.monotonic()
            with pytest.raises(BlockingIOError):
                accepted.recv(1)
            assert 0.5 < time.monotonic() - started < 5
