"""The log's way: spool and sender, against a platform that fails in every way."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora.errors import ApiError, LostAnswer, MingoraError
from mingora_worker import logs
from mingora_worker.api import MAX_CHUNK
from mingora_worker.logs import Sender, Spool


class Platform:
    """Stores a log as the protocol says. `faults` are taken one a request."""

    def __init__(self, faults: list[str] | None = None) -> None:
        self.log = bytearray()
        self.truncated = False
        self.faults = list(faults or [])
        self.sizes: list[int] = []

    def put(self, offset: int, data: bytes, truncated: bool) -> int:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "down":
            raise LostAnswer("no answer")
        if offset > len(self.log):
            raise ApiError("log_gap", 409, "", fields={"acked": len(self.log)})
        assert len(data) <= MAX_CHUNK
        self.sizes.append(len(data))
        stored = data[len(self.log) - offset :]
        self.log += stored[: len(stored) // 2] if fault == "half" else stored
        self.truncated = self.truncated or truncated
        if fault == "lost answer":
            raise LostAnswer("no answer")
        return len(self.log)


def make_sender(spool: Spool, platform: Platform, *, resume: bool = False) -> Sender:
    sender = Sender(spool, platform.put, resume=resume, on_failure=lambda _e: None)
    sender._backoff._spread = lambda _low, _high: 0.0
    return sender


OPEN: list[Spool] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def opened(path: Path, cap: int = 1 << 30) -> Spool:
    path.unlink(missing_ok=True)
    OPEN.append(Spool(path, cap))
    return OPEN[-1]


def sealed(path: Path, data: bytes, cap: int = 1 << 30) -> Spool:
    spool = opened(path, cap)
    spool.append(data)
    spool.seal()
    return spool


@pytest.mark.req("WORK-6")
def test_a_long_log_goes_in_chunks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    platform = Platform()
    sender = make_sender(sealed(tmp_path / "log", data), platform)
    sender.run()
    assert platform.log == data
    assert platform.sizes == [MAX_CHUNK, MAX_CHUNK, len(data) - 2 * MAX_CHUNK]
    assert (sender.acked, sender.failure, sender.done.is_set()) == (len(data), None, True)


@pytest.mark.req("WORK-6")
@given(st.binary(max_size=300), st.lists(st.sampled_from(["down", "lost answer", "half", ""]), max_size=12))
def test_whatever_fails_every_byte_arrives_once(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, faults: list[str]
) -> None:
    platform = Platform(faults)
    spool = sealed(tmp_path_factory.getbasetemp() / "faulty-log", data)
    make_sender(spool, platform).run()
    spool.close()
    assert platform.log == data


@pytest.mark.req("WORK-6")
@pytest.mark.parametrize("known", [0, 3, 10])
def test_a_new_sender_goes_on_where_the_platform_is(tmp_path: Path, known: int) -> None:
    platform = Platform()
    platform.log += b"0123456789"[:known]
    sender = make_sender(sealed(tmp_path / "log", b"0123456789"), platform, resume=True)
    sender.run()
    assert platform.log == b"0123456789"
    assert platform.sizes[0] == 0


@pytest.mark.req("WORK-6")
def test_a_platform_that_lost_bytes_gets_them_again(tmp_path: Path) -> None:
    platform = Platform()
    sender = make_sender(sealed(tmp_path / "log", b"0123456789"), platform)
    sender.acked = 5
    sender.run()
    assert platform.log == b"0123456789"


@pytest.mark.req("WORK-6")
@pytest.mark.parametrize("size", [10, 11, 1000])
def test_what_is_over_the_cap_is_dropped_and_said(tmp_path: Path, size: int) -> None:
    platform = Platform()
    make_sender(sealed(tmp_path / "log", b"x" * size, cap=10), platform).run()
    assert platform.log == b"x" * 10
    assert platform.truncated == (size > 10)


@pytest.mark.req("WORK-6")
def test_a_cut_after_all_was_sent_is_said_too(tmp_path: Path) -> None:
    platform = Platform()
    spool = opened(tmp_path / "log", 10)
    spool.append(b"x" * 10)
    sender = make_sender(spool, platform)
    sender.acked = platform.put(0, b"x" * 10, False)
    spool.append(b"y")
    spool.seal()
    sender.run()
    assert platform.truncated


@pytest.mark.req("JOB-4")
def test_a_lost_lease_ends_the_sending(tmp_path: Path) -> None:
    def put(_offset: int, _data: bytes, _truncated: bool) -> int:
        raise ApiError("lease_lost", 409, "")

    told: list[MingoraError] = []
    sender = Sender(sealed(tmp_path / "log", b"x"), put, resume=False, on_failure=told.append)
    sender.run()
    assert sender.done.is_set()
    assert sender.failure is not None
    assert told == []


def test_a_full_disk_is_remembered_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = opened(tmp_path / "log", 100)
    spool.append(b"before")

    class Full:
        close = staticmethod(spool._file.close)

        def write(self, _data: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spool, "_file", Full())
    spool.append(b"after")
    assert spool.error is not None
    assert spool.size == 6


def test_nothing_is_taken_after_the_seal(tmp_path: Path) -> None:
    spool = sealed(tmp_path / "log", b"all")
    spool.append(b"late")
    assert (spool.size, spool.read(0)) == (3, b"all")
    spool.close()
    assert spool.read(0) == b""


def test_a_log_is_private(tmp_path: Path) -> None:
    Spool(tmp_path / "log", 10).close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_few_requests_for_a_chatty_job() -> None:
    assert logs.STEADY_SECONDS >= 1.0
    assert logs.PROMPT_SECONDS <= 0.2
