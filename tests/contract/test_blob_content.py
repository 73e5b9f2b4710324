"""One suite for every implementation of the content port."""

from __future__ import annotations

import multiprocessing
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blob_support import random_bytes, sha

from mingora_blobstore.domain.objects import PartKey
from mingora_blobstore.store.content import PIECE, ContentStore
from mingora_blobstore.store.sqlite_content import PAGE_BYTES, SqliteContent
from mingora_common.errors import UNAVAILABLE, ServiceError

DATA = random_bytes(PIECE + 777)


def key(name: str = "obj_1", generation: int = 1, index: int = 0, data: bytes = DATA) -> PartKey:
    return PartKey(name, generation, index, sha(data))


@pytest.fixture
def content_file(tmp_path: Path) -> Path:
    return tmp_path / "content.sqlite"


@pytest.fixture(params=["sqlite"])
def content(request: pytest.FixtureRequest, content_file: Path) -> Iterator[ContentStore]:
    store = SqliteContent(str(content_file))
    yield store
    store.close()


@pytest.mark.req("BLOB-1", "BLOB-4")
def test_what_is_put_is_read_in_pieces(content: ContentStore) -> None:
    content.put(key(), DATA, now=5)
    assert content.read(key(), 0, PIECE) == DATA[:PIECE]
    assert content.read(key(), PIECE, PIECE) == DATA[PIECE:]
    assert content.read(key(), 3, 4) == DATA[3:7]
    assert content.read(key(), len(DATA) + 9, 4) == b""
    assert content.sizes([key(), key(index=1), key()]) == [len(DATA), None, len(DATA)]
    assert content.read(key(index=1), 0, 1) is None
    content.ping()
    content.compact()


@pytest.mark.req("BLOB-2")
def test_every_member_of_the_key_counts(content: ContentStore) -> None:
    keys = [key(), key("obj_2"), key(generation=2), key(index=1), key(data=b"other")]
    for number, one in enumerate(keys):
        content.put(one, bytes([number]), now=5)
    assert [content.read(one, 0, 1) for one in keys] == [bytes([number]) for number in range(5)]
    content.delete(keys[0])
    assert content.sizes(keys) == [None, 1, 1, 1, 1]
    content.delete(keys[0])
    content.delete_object("obj_1", 1)
    assert content.sizes(keys) == [None, 1, 1, None, None]


@pytest.mark.req("BLOB-7")
def test_older_content_is_found_in_order_and_spared_when_put_again(content: ContentStore) -> None:
    keys = [key(index=index) for index in range(5)]
    for now, one in enumerate(keys):
        content.put(one, DATA, now=now)
    first = content.older(4, after=0, limit=3)
    rest = content.older(4, after=first[-1][0], limit=3)
    assert [found for _, found in first + rest] == keys[:4]
    content.put(keys[0], DATA, now=9)
    assert content.delete_older(keys[0], 4) is False
    assert content.delete_older(keys[1], 4) is True
    assert content.delete_older(keys[1], 4) is False
    assert content.sizes(keys[:2]) == [len(DATA), None]


@pytest.mark.req("BLOB-7")
def test_an_object_of_many_parts_goes_whole(content: ContentStore) -> None:
    keys = [key(index=index, data=b"x") for index in range(100)]
    for one in keys:
        content.put(one, b"x", now=1)
    content.delete_object("obj_1", 1)
    assert content.older(2, after=0, limit=10) == []


@pytest.mark.req("BLOB-2")
def test_threads_and_processes_write_at_once(content: ContentStore, content_file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=put_many, args=(str(content_file), "obj_2"))
    other.start()
    with ThreadPoolExecutor(8) as pool:
        pieces = list(pool.map(lambda index: put_and_read(content, key(index=index)), range(40)))
    other.join(60)
    assert other.exitcode == 0
    assert pieces == [DATA[:PIECE]] * 40
    assert content.sizes([key("obj_2", index=index) for index in range(20)]) == [len(DATA)] * 20


def put_and_read(content: ContentStore, one: PartKey) -> bytes | None:
    content.put(one, DATA, now=1)
    return content.read(one, 0, PIECE)


def put_many(path: str, name: str) -> None:
    store = SqliteContent(path)
    for index in range(20):
        store.put(key(name, index=index), DATA, now=1)
    store.close()


@pytest.mark.req("BLOB-4")
def test_the_file_is_private_durable_and_gives_space_back(content_file: Path) -> None:
    store = SqliteContent(str(content_file))
    assert stat.S_IMODE(content_file.stat().st_mode) == 0o600
    connection = sqlite3.connect(content_file)
    assert connection.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    connection.close()
    for index in range(8):
        store.put(key(index=index), DATA, now=1)
    full = content_file.stat().st_size
    store.delete_object("obj_1", 1)
    store.compact()
    assert content_file.stat().st_size < full / 4
    store.close()


@pytest.mark.req("BLOB-1")
def test_a_file_that_cannot_be_written_is_unavailable(content_file: Path) -> None:
    store = SqliteContent(str(content_file))
    store.put(key(), DATA, now=1)
    blocker = sqlite3.connect(content_file, isolation_level=None)
    blocker.execute("DROP TABLE part")
    blocker.close()
    with pytest.raises(ServiceError) as caught:
        store.put(key(), DATA, now=1)
    assert caught.value.kind is UNAVAILABLE
    store.close()


@pytest.mark.req("BLOB-1")
def test_reading_writes_nothing_so_that_a_full_disk_is_still_read(content_file: Path) -> None:
    SqliteContent(str(content_file)).put(key(), DATA, now=1)
    before = content_file.read_bytes()
    store = SqliteContent(str(content_file))  # its connections are new
    assert store.read(key(), 0, PIECE) == DATA[:PIECE]
    store.close()
    assert content_file.read_bytes() == before  # each write counts one up in the file's head


@pytest.mark.req("BLOB-1")
@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_damaged_file_is_unavailable(content_file: Path, damage: str) -> None:
    store = SqliteContent(str(content_file))
    store.put(key(), DATA, now=1)
    whole = content_file.read_bytes()
    content_file.write_bytes(whole[: len(whole) // 2] if damage == "cut" else random_bytes(4096) + whole[4096:])
    with pytest.raises(ServiceError) as reading:
        store.read(key(), 0, PIECE)
    with pytest.raises(ServiceError) as writing:
        store.put(key("obj_2"), DATA, now=1)
    assert (reading.value.kind, writing.value.kind) == (UNAVAILABLE, UNAVAILABLE)
    store.close()
