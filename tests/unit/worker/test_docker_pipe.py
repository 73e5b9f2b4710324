"""A job's output through a named pipe: every byte, in order, and no descriptor touched after it is closed."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from mingora_worker.runtimes.docker.pipe import NAME, PIPE_BYTES, PipeOutput

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")


class Ended:
    """Says whether the job has ended."""

    def __init__(self) -> None:
        self.now = False

    def __call__(self) -> bool:
        return self.now


def drain(output: PipeOutput) -> bytes:
    parts = []
    while data := output.read(64 * 1024):
        parts.append(data)
    return b"".join(parts)


@pytest.mark.req("WORK-6")
def test_bytes_of_writers_that_come_and_go_arrive_whole(tmp_path: Path) -> None:
    ended = Ended()
    output = PipeOutput(tmp_path, ended)
    parts = [os.urandom(size) for size in (1, 16_384, 16_385, 3 * PIPE_BYTES, 7)]

    def write() -> None:
        for part in parts:  # each opens and closes the pipe anew, as the programs of a script do
            with (tmp_path / NAME).open("wb") as pipe:
                pipe.write(part)
        ended.now = True
        output.wake()

    writer = threading.Thread(target=write)
    writer.start()
    assert drain(output) == b"".join(parts)
    writer.join()
    assert output.passed == sum(map(len, parts))
    output.close()


@pytest.mark.req("WORK-6")
def test_the_end_is_seen_at_once(tmp_path: Path) -> None:
    ended = Ended()
    output = PipeOutput(tmp_path, ended)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(output.read(100)))
    reader.start()
    ended.now = True
    output.wake()
    reader.join(0.9)  # less than it looks again by itself
    assert got == [b""]
    output.close()


@pytest.mark.req("WORK-6")
def test_a_close_under_a_reader_takes_nobody_elses_bytes(tmp_path: Path) -> None:
    output = PipeOutput(tmp_path, lambda: False)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(output.read(100)))
    reader.start()
    output.wake()
    output.close()
    others = [os.pipe() for _ in range(8)]  # they get the numbers that have become free
    for _reading, writing in others:
        os.write(writing, b"somebody else's")
    reader.join(5)
    assert got == [b""]
    output.close()
    assert [os.read(reading, 100) for reading, _writing in others] == [b"somebody else's"] * 8
    for pair in others:
        for descriptor in pair:
            os.close(descriptor)


@pytest.mark.req("WORK-6")
def test_numbers_above_what_select_takes_are_no_trouble(tmp_path: Path) -> None:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 1_200:
        pytest.skip(f"only {most} files may be open")
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        ended = Ended()
        output = PipeOutput(tmp_path, ended)
        timer = threading.Timer(0.05, lambda: (tmp_path / NAME).write_bytes(b"said"))
        timer.start()
        assert output.read(10) == b"said"
        timer.join()
        output.close()
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.req("WORK-7")
def test_the_pipe_may_be_written_by_the_containers_user_and_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("what a former worker left")
    output = PipeOutput(tmp_path, lambda: True)
    mode = (tmp_path / NAME).stat().st_mode
    assert stat.S_ISFIFO(mode) and stat.S_IMODE(mode) == 0o622
    before = time.monotonic()
    assert output.read(10) == b""
    assert time.monotonic() - before < 0.5
    output.close()
