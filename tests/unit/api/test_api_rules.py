"""Names and passwords, cursors, cutting logs, counting sign-ins, and the settings."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_api.config import Config
from mingora_api.domain.logslice import Chunk, cut
from mingora_api.domain.names import name_problem, normal, password_problem
from mingora_api.routes.cursors import read_cursor, write_cursor
from mingora_api.store.jobs import Position
from mingora_api.store.signins import SignIns
from mingora_common.config import ConfigError
from mingora_common.errors import ServiceError
from mingora_common.wake import connect

SECRET = "0123456789abcdef0123456789abcdef"
ENVIRON = {
    "DATABASE_URL": "sqlite:////data/platform.sqlite",
    "REDIS_URL": "redis://:Tr0ub4dor-pwXyz9871@127.0.0.1:6379",
    "MINGORA_INTERNAL_KEY": SECRET,
    "MINGORA_BLOBSTORE_URL": "http://127.0.0.1:8002",
}


@pytest.mark.req("AUTH-1")
@pytest.mark.parametrize("name", ["ali", "Gülşen.Öz", "李雷", "a", "7-up_x", "İpek", "x" * 100])
def test_names_that_can_be_used(name: str) -> None:
    assert name_problem(normal(name)) is None


@pytest.mark.req("AUTH-1")
@pytest.mark.parametrize(
    "name",
    ["", "x" * 101, " a", "a b", ".a", "-a", "a/b", "a\n", "a\u202eb", "a\u200db", "e\u0301", "a@b", "😀", "a\0"],
)
def test_names_that_cannot(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.req("AUTH-8")
def test_passwords() -> None:
    assert password_problem("1234567") is not None
    assert password_problem("12345678") is None
    assert password_problem("电" * 341) is None
    assert password_problem("电" * 342) is not None
    assert password_problem("\ud800" * 8) is not None


@pytest.mark.req("JOB-1")
@given(st.integers(0, 10**15 - 1), st.from_regex(r"job_[A-Za-z0-9_-]{8,64}", fullmatch=True))
def test_a_cursor_comes_back_as_it_was(created_at: int, job_id: str) -> None:
    cursor = write_cursor(Position(created_at, job_id))
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert read_cursor(cursor) == Position(created_at, job_id)


@pytest.mark.req("JOB-1")
@given(st.text() | st.text("ABCabc019+/=-_"))
def test_any_other_text_is_no_cursor(text: str) -> None:
    try:
        position = read_cursor(text)
    except ServiceError as error:
        assert error.kind.code == "invalid_request"
    else:
        assert read_cursor(write_cursor(position)) == position


@st.composite
def stored_logs(draw: st.DrawFn) -> tuple[bytes, list[Chunk]]:
    """A log and its chunks, compressed or not, some empty."""
    chunks, whole = [], b""
    for data in draw(st.lists(st.binary(max_size=40) | st.just(b"x" * 200_000), max_size=8)):
        compressed = draw(st.booleans())
        stored = zlib.compress(data) if compressed else data
        chunks.append(Chunk(len(whole), len(data), "zlib" if compressed else "raw", stored))
        whole += data
    return whole, chunks


@pytest.mark.req("WORK-6")
@given(stored_logs(), st.data())
def test_a_cut_is_the_same_bytes_as_of_the_whole(log: tuple[bytes, list[Chunk]], data: st.DataObject) -> None:
    whole, chunks = log
    offset = data.draw(st.integers(0, len(whole) + 3))
    end = data.draw(st.integers(offset, len(whole) + 3))
    assert cut(chunks, offset, end) == whole[offset:end]
    # What comes before the offset needn't be given.
    assert cut([chunk for chunk in chunks if chunk.start + chunk.size > offset], offset, end) == whole[offset:end]


@pytest.mark.req("WORK-6")
def test_a_cut_ends_at_a_gap_and_at_damage() -> None:
    first, third = Chunk(0, 2, "raw", b"ab"), Chunk(4, 2, "raw", b"ef")
    assert cut([first, third], 0, 6) == b"ab"
    assert cut([third], 0, 6) == b""
    short = Chunk(0, 10, "zlib", zlib.compress(b"0123456789")[:-8])
    assert b"0123456789".startswith(cut([short, Chunk(10, 2, "raw", b"ab")], 0, 12))
    with pytest.raises(ValueError, match="codec"):
        cut([Chunk(0, 1, "lz4", b"?")], 0, 1)


@pytest.mark.req("AUTH-8")
def test_a_flood_from_one_address_costs_no_other_name_its_attempts() -> None:
    sign_ins = SignIns(connect("unix:///nonexistent/redis.sock"))
    for number in range(30):
        sign_ins.count(f"n{number}", "192.0.2.1")
    with pytest.raises(ServiceError) as caught:
        sign_ins.count("ali", "::ffff:192.0.2.1")  # the same address, mapped into IPv6
    assert caught.value.retry_after is not None and 1 <= caught.value.retry_after <= 60
    for _ in range(10):
        sign_ins.count("ali", "192.0.2.2")
    with pytest.raises(ServiceError):
        sign_ins.count("ali", "192.0.2.3")


@pytest.mark.req("OPS-2")
def test_the_settings_are_read_once_and_hide_their_secrets() -> None:
    config = Config.from_env({**ENVIRON, "MINGORA_MAX_WAITERS": "7"})
    assert (config.max_waiters, config.internal_ca_file) == (7, None)
    assert SECRET not in repr(config) and "Tr0ub4dor" not in repr(config)
    with pytest.raises(ConfigError, match=r"DATABASE_URL.*REDIS_URL.*MINGORA_INTERNAL_KEY.*MINGORA_BLOBSTORE_URL"):
        Config.from_env({})
    with pytest.raises(ConfigError, match="too short"):
        Config.from_env({**ENVIRON, "MINGORA_INTERNAL_KEY": "short"})
