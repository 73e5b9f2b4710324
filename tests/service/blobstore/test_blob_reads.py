"""Listing, content with ranges, and what happens when stored bytes are gone or rotten."""

from __future__ import annotations

import sqlite3
import time

import pytest
from blob_support import Caller, Service, code, pieces, random_bytes, sha
from support import Seed

from mingora_blobstore.domain.objects import PART_SIZE
from mingora_blobstore.store.reading import ContentLost

DATA = random_bytes(PART_SIZE + 1000)
SIZE = len(DATA)


def damage(service: Service, statement: str, *values: object) -> None:
    with sqlite3.connect(service.content_file) as connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.req("BLOB-1")
def test_content_is_served_with_its_digest(user: Caller) -> None:
    path = f"/objects/{user.store(DATA)}/content"
    whole = user.call("GET", path)
    assert (whole.status_code, whole.data) == (200, DATA)
    head = user.call("HEAD", path, headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.data) == (200, b"")
    for answer in (whole, head):
        assert answer.content_length == SIZE
        assert answer.headers["ETag"] == f'"{sha(DATA)}"'
        assert answer.headers["X-Content-SHA256"] == sha(DATA)
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.mimetype == "application/octet-stream"
        assert "Content-Range" not in answer.headers


@pytest.mark.req("BLOB-1")
@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        (f"bytes={PART_SIZE - 1}-{PART_SIZE}", PART_SIZE - 1, PART_SIZE + 1),
        (f"bytes={PART_SIZE}-", PART_SIZE, SIZE),
        ("bytes=-5", SIZE - 5, SIZE),
        (f"bytes=5-{SIZE * 2}", 5, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
    ],
)
def test_one_range_is_served(user: Caller, header: str, start: int, stop: int) -> None:
    answer = user.call("GET", f"/objects/{user.store(DATA)}/content", headers={"Range": header})
    assert (answer.status_code, answer.data) == (206, DATA[start:stop])
    assert answer.content_length == stop - start
    assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{SIZE}"


@pytest.mark.req("BLOB-1")
def test_other_ranges_get_the_whole_or_416(user: Caller) -> None:
    path = f"/objects/{user.store(DATA)}/content"
    for header in ("bytes=0-1,4-5", "bytes=5-2", "bytes=x-", "lines=0-1", "bytes=-", "bytes"):
        answer = user.call("GET", path, headers={"Range": header})
        assert (answer.status_code, answer.content_length) == (200, SIZE), header
    for header in (f"bytes={SIZE}-", "bytes=-0"):
        answer = user.call("GET", path, headers={"Range": header})
        assert (answer.status_code, code(answer)) == (416, "range_not_satisfiable")
        assert answer.headers["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.req("BLOB-1")
def test_conditional_reads(user: Caller) -> None:
    path, etag = f"/objects/{user.store(DATA)}/content", f'"{sha(DATA)}"'
    for tags in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        answer = user.call("GET", path, headers={"If-None-Match": tags, "Range": "bytes=0-1"})
        assert (answer.status_code, answer.data, answer.headers["ETag"]) == (304, b"", etag)
    assert user.call("GET", path, headers={"If-None-Match": '"x"'}).status_code == 200
    part = {"Range": "bytes=0-1"}
    assert user.call("GET", path, headers={**part, "If-Range": etag}).status_code == 206
    for validator in ('"x"', f"W/{etag}", "Fri, 15 Jan 2027 08:00:00 GMT"):
        assert user.call("GET", path, headers={**part, "If-Range": validator}).status_code == 200


@pytest.mark.req("BLOB-1", "BLOB-7")
@pytest.mark.parametrize("statement", ["DELETE FROM part WHERE idx = ?", "UPDATE part SET data = x'00' WHERE idx = ?"])
def test_missing_or_short_content_is_never_a_short_answer(user: Caller, service: Service, statement: str) -> None:
    object_id = user.store(DATA)
    damage(service, statement, 1)
    answer = user.call("GET", f"/objects/{object_id}/content")
    assert (answer.status_code, code(answer)) == (409, "object_corrupt")
    assert user.state(object_id) == "corrupt"
    assert user.usage() == (0, 0)
    assert service.stored_bytes() == 0


@pytest.mark.req("BLOB-1")
def test_rotten_content_breaks_the_answer_off(user: Caller, service: Service) -> None:
    object_id = user.store(DATA)
    damage(service, "UPDATE part SET data = zeroblob(1000) WHERE idx = 1")
    answer = user.call("GET", f"/objects/{object_id}/content")
    assert answer.content_length == SIZE
    with pytest.raises(ContentLost):
        _ = answer.data
    assert user.state(object_id) == "corrupt"


@pytest.mark.req("BLOB-1")
def test_content_lost_before_complete_is_a_mismatch(user: Caller, service: Service) -> None:
    object_id = user.open(DATA).json["id"]
    for index, piece in enumerate(pieces(DATA)):
        user.put(object_id, index, piece)
    damage(service, "DELETE FROM part WHERE idx = 0")
    assert code(user.complete(object_id)) == "digest_mismatch"
    assert user.usage() == (0, 0)


@pytest.mark.req("BLOB-1")
def test_a_slow_reader_holds_up_no_writer(user: Caller) -> None:
    path = f"/objects/{user.store(DATA)}/content"
    answer = user.call("GET", path)
    reading = answer.iter_encoded()
    first = next(iter(reading))
    started = time.monotonic()
    user.store(random_bytes(2 * PART_SIZE, seed=5))
    assert time.monotonic() - started < 5
    assert first + b"".join(reading) == DATA


@pytest.mark.req("BLOB-1")
def test_objects_are_listed_newest_first_in_pages(user: Caller, service: Service, seed: Seed) -> None:
    made = []
    for number in range(5):
        made.append(user.open(bytes([number])).json["id"])
        service.clock.advance(number % 2)  # some within one millisecond
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = user.call("GET", "/objects", query_string={"limit": "2", **after}).json
        seen += [item["id"] for item in page["objects"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert sorted(seen) == sorted(made)
    assert seen[0] == made[-1]
    assert set(seen[1:3]) == set(made[2:4])
    assert page["usage"] == {"bytes": 5, "files": 5, "maxBytes": 64 << 20, "maxFiles": 1000}
    found = user.call("GET", "/objects", query_string={"sha256": sha(b"\x03")}).json["objects"]
    assert [item["id"] for item in found] == [made[3]]
    assert service.caller(seed.account("ayse")).call("GET", "/objects").json["objects"] == []
    for query in ({"limit": "0"}, {"limit": "x"}, {"after": "x"}, {"after": "1.obj_'"}, {"sha256": "x"}):
        assert user.call("GET", "/objects", query_string=query).status_code == 400


@pytest.mark.req("BLOB-1")
def test_a_batch_of_a_thousand_known_objects_is_quick(user: Caller) -> None:
    wanted = [{"size": 2, "sha256": sha(number.to_bytes(2, "big")), "kind": "input"} for number in range(1000)]
    first = user.call("POST", "/objects/batch", json={"objects": wanted}).json["objects"]
    started = time.monotonic()
    again = user.call("POST", "/objects/batch", json={"objects": wanted}).json["objects"]
    assert time.monotonic() - started < 2  # 0.1 s on an idle machine
    assert [item["id"] for item in again] == [item["id"] for item in first]
    assert len({item["id"] for item in first}) == 1000


@pytest.mark.req("OPS-3")
def test_health(service: Service) -> None:
    client = service.app.test_client()
    assert client.get("/healthz").data == b"ok"
    assert client.get("/readyz").status_code == 200
