"""Init's last words are told from the job's output, whatever the job writes and however the bytes are cut."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_worker.runtimes.docker.attached import Attached, last_words, unframed
from mingora_worker.runtimes.docker.container import _told

FIRST = b"[INFO  tini (1)] Spawned child process 'sh' with pid '7'\n"


def words(how: str, what: str) -> bytes:
    ended = "exited normally" if how == "status" else "exited with signal"
    return FIRST + f"[INFO  tini (1)] Main child {ended} (with {how} '{what}')\n".encode()


def frame(data: bytes, stream: int = 1) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


class Heard(Attached):
    """What is read when the engine sends these frames."""

    def __init__(self, payload: list[bytes]) -> None:
        self._payload_given = payload
        self._chunks = self._joined()
        self._pending = b""
        self._over: Any = type("Over", (), {"set": lambda _self: None})()
        self.tail = b""
        self.passed = 0

    def _payload(self) -> Any:
        yield from self._payload_given

    def all(self, size: int) -> bytes:
        parts = []
        while data := self.read(size):
            assert len(data) <= size
            parts.append(data)
        return b"".join(parts)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted({min(place, len(data)) for place in at}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


pieces = st.lists(
    st.one_of(st.binary(max_size=40), st.sampled_from([FIRST, FIRST[:20], b"[INFO  tini (1)]", b"\n", b"["]))
)


@pytest.mark.req("WORK-6")
@given(pieces, st.lists(st.integers(0, 400)), st.integers(1, 5_000))
def test_the_jobs_bytes_are_all_there_and_inits_are_not(written: list[bytes], at: list[int], size: int) -> None:
    job = b"".join(written)
    heard = Heard(cut(job + words("status", "3"), at))
    assert heard.all(size) == job
    assert heard.passed == len(job)
    assert last_words(heard.tail) == ("status", "3")


@pytest.mark.req("WORK-6")
@given(pieces, st.lists(st.integers(0, 400)))
def test_without_words_nothing_is_held_back(written: list[bytes], at: list[int]) -> None:
    job = b"".join(written)
    assert Heard(cut(job, at)).all(64) == job


@pytest.mark.req("WORK-6")
def test_what_only_looks_like_the_beginning_is_passed_on_in_time() -> None:
    heard = Heard([FIRST[:30], b"x" * 10_000, b"more"])
    assert len(heard.read(20_000)) == 10_030  # and not only at the end


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300))), st.lists(st.integers(0, 2_000)))
def test_frames_are_read_however_they_are_cut(frames: list[tuple[int, bytes]], at: list[int]) -> None:
    sent = b"".join(frame(data, stream) for stream, data in frames)
    got, held = b"", b""
    for part in cut(sent, at):
        payload, held = unframed(held + part)
        got += payload
    assert (got, held) == (b"".join(data for _stream, data in frames), b"")


@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (0, ("status", "0"), (0, None)),
        (137, ("status", "137"), (137, None)),
        (137, ("signal", "Killed"), (None, 9)),
        (143, ("signal", "Terminated"), (None, 15)),
        (143, ("status", "143"), (143, None)),
        (255, ("status", "255"), (255, None)),
        (44, ("status", "44"), (44, None)),
        (137, None, (None, 9)),  # init itself was killed
        (137, ("status", "0"), (None, 9)),  # the job spoke as if it were init
        (128, ("status", "128"), (128, None)),
        (255, None, (255, None)),
    ],
)
def test_a_code_is_told_from_a_signal(
    code: int, said: tuple[str, str] | None, told: tuple[int | None, int | None]
) -> None:
    assert _told(code, said) == told
