"""Blobstore's pure rules: parts, ranges, room, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingora_blobstore.config import Config
from mingora_blobstore.domain.access import lease_may_read
from mingora_blobstore.domain.objects import (
    COMPLETE,
    CORRUPT,
    INPUT,
    MAX_OBJECT_BYTES,
    OPEN,
    PART_SIZE,
    RESULT,
    StoredObject,
    is_sha256,
)  # fmt: skip
from mingora_blobstore.domain.openings import Room, Wanted
from mingora_blobstore.domain.uploads import check_index, part_index, refusal
from mingora_common import ranges
from mingora_common.auth import Limits
from mingora_common.config import ConfigError
from mingora_common.errors import FILE_TOO_LARGE, OBJECT_CORRUPT, OBJECT_FROZEN, PART_CONFLICT, ServiceError

A, B = "a" * 64, "b" * 64


def an_object(size: int, kind: str = INPUT, part_size: int = PART_SIZE) -> StoredObject:
    return StoredObject("obj_1", "acc_1", kind, size, A, part_size, OPEN, 1, 0, 0, None)


@pytest.mark.req("BLOB-1", "BLOB-4")
@given(st.integers(0, 10_000), st.integers(1, 300))
def test_parts_add_up_to_the_object(size: int, part_size: int) -> None:
    item = an_object(size, part_size=part_size)
    parts = [item.part_bytes(index) for index in range(item.parts)]
    assert sum(parts) == size
    assert all(part == part_size for part in parts[:-1])
    assert all(1 <= part <= part_size for part in parts[-1:])


@pytest.mark.req("BLOB-4")
@given(st.text(max_size=12))
def test_a_part_index_is_plain_digits_within_the_object(text: str) -> None:
    item = an_object(3 * PART_SIZE)
    try:
        index = part_index(text)
        check_index(index, item)
    except ServiceError as error:
        assert error.kind.status == 400
    else:
        assert 0 <= index < 3
        assert text.lstrip("0") in ("", str(index))


@pytest.mark.req("BLOB-2")
def test_a_part_is_refused_only_for_other_bytes() -> None:
    assert [refusal(OPEN, held, A) for held in (None, A, B)] == [None, None, PART_CONFLICT]
    assert [refusal(COMPLETE, held, A) for held in (None, A, B)] == [OBJECT_FROZEN, None, OBJECT_FROZEN]
    assert {refusal(CORRUPT, held, A) for held in (None, A, B)} == {OBJECT_CORRUPT}


@pytest.mark.req("AUTH-6")
def test_a_lease_reads_results_and_pinned_inputs() -> None:
    table = {
        (kind, held): lease_may_read(an_object(1, kind), held) for kind in (INPUT, RESULT) for held in (False, True)
    }
    assert table == {(INPUT, 0): False, (INPUT, 1): True, (RESULT, 0): True, (RESULT, 1): True}


@pytest.mark.req("BLOB-4", "BLOB-7")
@given(st.lists(st.integers(0, 40)), st.integers(0, 100), st.integers(0, 10), st.integers(0, 30))
def test_room_is_never_passed(sizes: list[int], max_bytes: int, max_files: int, max_file_bytes: int) -> None:
    limits = Limits(max_file_bytes, max_bytes, max_files, 0, 0)
    room = Room(3, 1, limits)
    for size in sizes:
        before = (room.taken_bytes, room.taken_files)
        fits = (
            size <= max_file_bytes and 3 + before[0] + size <= max_bytes and 1 + before[1] + 1 <= max_files
        )  # fmt: skip
        try:
            room.take(size)
        except ServiceError:
            assert not fits
            assert (room.taken_bytes, room.taken_files) == before
        else:
            assert fits
            assert (room.taken_bytes, room.taken_files) == (before[0] + size, before[1] + 1)


@pytest.mark.req("BLOB-4")
def test_no_limit_of_an_account_lets_a_part_index_overflow() -> None:
    room = Room(0, 0, Limits(2**60, 2**60, 10, 0, 0))
    room.take(MAX_OBJECT_BYTES)
    with pytest.raises(ServiceError) as caught:
        room.take(MAX_OBJECT_BYTES + 1)
    assert (caught.value.kind, caught.value.fields) == (FILE_TOO_LARGE, {"allowed": MAX_OBJECT_BYTES})
    assert an_object(MAX_OBJECT_BYTES).parts < 2**31


@pytest.mark.req("REST-2")
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists) | st.dictionaries(
    st.sampled_from(["size", "sha256", "kind", "x"]), st.none() | st.integers() | st.text() | st.just(A)
))  # fmt: skip
def test_an_opening_is_parsed_or_refused(item: object) -> None:
    try:
        wanted = Wanted.parse(item)
    except ServiceError as error:
        assert error.kind.status == 400
    else:
        assert is_sha256(wanted.sha256) and wanted.size >= 0


SIZES = st.integers(0, 300)
ETAG = f'"{A}"'


@pytest.mark.req("BLOB-1")
@given(SIZES, st.integers(0, 400), st.none() | st.integers(0, 400))
def test_a_range_from_its_first_byte(size: int, first: int, last: int | None) -> None:
    header = f"bytes={first}-{'' if last is None else last}"
    if last is not None and last < first:
        assert ranges.requested(header, None, ETAG, size) is None
    elif first >= size:
        with pytest.raises(ranges.Unsatisfiable):
            ranges.requested(header, None, ETAG, size)
    else:
        data = list(range(size))
        span = ranges.requested(header, ETAG, ETAG, size)
        assert span is not None
        assert data[slice(*span)] == (data[first:] if last is None else data[first : last + 1])


@pytest.mark.req("BLOB-1")
@given(SIZES, st.integers(0, 400))
def test_a_range_of_the_last_bytes(size: int, length: int) -> None:
    if length == 0:
        with pytest.raises(ranges.Unsatisfiable):
            ranges.requested("bytes=-0", None, ETAG, size)
        return
    span = ranges.requested(f"bytes=-{length}", None, ETAG, size)
    data = list(range(size))
    assert (data if span is None else data[slice(*span)]) == data[-length:]


@pytest.mark.req("BLOB-1")
@given(st.text(alphabet="bytes=-0123456789, x\t", max_size=30), SIZES)
def test_any_range_is_a_span_within_the_content_or_none(header: str, size: int) -> None:
    try:
        span = ranges.requested(header, None, ETAG, size)
    except ranges.Unsatisfiable:
        return
    assert span is None or 0 <= span[0] < span[1] <= size


@pytest.mark.req("BLOB-1")
def test_if_range_and_if_none_match() -> None:
    for validator in ('"other"', f"W/{ETAG}", "Fri, 15 Jan 2027 08:00:00 GMT", ""):
        assert ranges.requested("bytes=0-1", validator, ETAG, 5) is None
    assert ranges.none_match(None, ETAG) is False
    assert ranges.none_match('"other"', ETAG) is False
    assert ranges.none_match(f'"other",W/{ETAG}', ETAG) is True
    assert ranges.none_match("*", ETAG) is True


@pytest.mark.req("OPS-1")
def test_the_configuration_tells_every_problem_and_hides_secrets() -> None:
    environ = {
        "DATABASE_URL": "sqlite:////x", "MINGORA_CONTENT_FILE": "/c", "MINGORA_INTERNAL_KEY": "0123456789abcdef" * 2,
    }  # fmt: skip
    config = Config.from_env(environ)
    assert (config.content_file, "0123456789abcdef" in repr(config)) == ("/c", False)
    with pytest.raises(ConfigError) as caught:
        Config.from_env({"MINGORA_INTERNAL_KEY": "short"})
    assert all(name in str(caught.value) for name in environ)
