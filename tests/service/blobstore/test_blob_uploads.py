"""Opening, sending and completing objects over HTTP."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from blob_support import Caller, Service, code, pieces, random_bytes, sha
from support import Seed

from mingora_blobstore.domain.objects import PART_SIZE
from mingora_common.db import schema
from mingora_common.ids import new_id

TWO_PARTS = random_bytes(PART_SIZE + 1000)


@pytest.mark.req("BLOB-1", "BLOB-4", "REST-1")
def test_an_object_goes_from_open_to_complete(user: Caller) -> None:
    opened = user.open(TWO_PARTS)
    assert opened.status_code == 201
    expected = {
        "kind": "input", "size": len(TWO_PARTS), "sha256": sha(TWO_PARTS), "state": "open", "partSize": PART_SIZE,
        "parts": 2, "present": [], "createdAt": "2027-01-15T08:00:00.000Z", "completedAt": None, "pinned": False,
    }  # fmt: skip
    assert {name: opened.json[name] for name in expected} == expected
    object_id = opened.json["id"]
    assert object_id.startswith("obj_")
    first, second = pieces(TWO_PARTS)
    sent = user.put(object_id, 1, second)
    assert sent.status_code == 200
    assert sent.json == {"index": 1, "size": 1000, "sha256": sha(second), "state": "open"}
    assert user.call("GET", f"/objects/{object_id}").json["present"] == [1]
    resumed = user.open(TWO_PARTS)
    assert (resumed.status_code, resumed.json["id"], resumed.json["present"]) == (200, object_id, [1])
    assert user.put(object_id, 0, first).status_code == 200
    done = user.complete(object_id)
    assert done.status_code == 200
    assert (done.json["state"], done.json["present"]) == ("complete", [0, 1])
    assert done.json["completedAt"] == "2027-01-15T08:00:00.000Z"
    assert user.call("GET", f"/objects/{object_id}/content").data == TWO_PARTS


@pytest.mark.req("BLOB-1")
def test_an_empty_object_has_no_parts(user: Caller) -> None:
    object_id = user.open(b"").json["id"]
    assert user.call("GET", f"/objects/{object_id}").json["parts"] == 0
    assert code(user.put(object_id, 0, b"")) == "invalid_request"
    assert user.complete(object_id).json["state"] == "complete"
    answer = user.call("GET", f"/objects/{object_id}/content")
    assert (answer.status_code, answer.data, answer.content_length) == (200, b"", 0)


@pytest.mark.req("BLOB-2")
def test_a_stored_part_cannot_be_changed(user: Caller) -> None:
    data, other = random_bytes(1000), random_bytes(1000, seed=1)
    object_id = user.open(data).json["id"]
    assert user.put(object_id, 0, data).status_code == 200
    assert user.put(object_id, 0, data).status_code == 200
    refused = user.put(object_id, 0, other)
    assert (refused.status_code, code(refused)) == (409, "part_conflict")
    assert user.complete(object_id).status_code == 200
    assert user.complete(object_id).status_code == 200
    assert user.put(object_id, 0, data).json["state"] == "complete"
    assert code(user.put(object_id, 0, other)) == "object_frozen"
    assert user.call("GET", f"/objects/{object_id}/content").data == data


@pytest.mark.req("BLOB-1")
def test_complete_names_the_missing_parts(user: Caller) -> None:
    object_id = user.open(TWO_PARTS).json["id"]
    user.put(object_id, 1, pieces(TWO_PARTS)[1])
    refused = user.complete(object_id)
    assert (refused.status_code, code(refused)) == (409, "object_incomplete")
    assert refused.json["error"]["missing"] == [0]
    assert code(user.call("GET", f"/objects/{object_id}/content")) == "object_incomplete"


@pytest.mark.req("BLOB-1")
def test_the_first_hundred_missing_parts_are_named(user: Caller, seed: Seed, account: str) -> None:
    object_id, now = new_id("obj"), seed.clock.now()
    seed.insert(
        schema.objects, id=object_id, account_id=account, sha256=sha(b"x"), size=400, kind="input", part_size=1,
        state="open", backend="sqlite", generation=1, created_at=now, touched_at=now,
    )  # fmt: skip
    there = [0, 7, 8, 250, 399]
    for index in there:
        seed.insert(schema.parts, object_id=object_id, idx=index, size=1, sha256=sha(b"x"), stored_at=now)
    assert user.call("GET", f"/objects/{object_id}").json["present"] == there
    missing = user.complete(object_id).json["error"]["missing"]
    assert missing == [index for index in range(400) if index not in there][:100]


@pytest.mark.req("BLOB-1")
def test_the_last_part_can_complete(user: Caller) -> None:
    object_id = user.open(TWO_PARTS).json["id"]
    first, second = pieces(TWO_PARTS)
    assert user.put(object_id, 0, first, query_string={"complete": "1"}).json["state"] == "open"
    assert user.put(object_id, 1, second, query_string={"complete": "1"}).json["state"] == "complete"
    assert user.state(object_id) == "complete"
    assert user.put(object_id, 1, second, query_string={"complete": "1"}).json["state"] == "complete"


@pytest.mark.req("BLOB-1", "BLOB-7")
def test_a_whole_digest_that_differs_makes_the_object_corrupt_and_gives_its_room_back(user: Caller) -> None:
    data = random_bytes(3000)
    lie = user.call("POST", "/objects", json={"size": len(data), "sha256": sha(b"other"), "kind": "input"})
    object_id = lie.json["id"]
    assert user.usage() == (3000, 1)
    assert user.put(object_id, 0, data).status_code == 200
    refused = user.complete(object_id)
    assert (refused.status_code, code(refused)) == (422, "digest_mismatch")
    assert user.usage() == (0, 0)
    assert (user.state(object_id), user.call("GET", f"/objects/{object_id}").json["present"]) == ("corrupt", [])
    for answer in (user.complete(object_id), user.put(object_id, 0, data)):
        assert (answer.status_code, code(answer)) == (409, "object_corrupt")
    assert code(user.call("GET", f"/objects/{object_id}/content")) == "object_corrupt"


@pytest.mark.req("BLOB-1")
def test_a_corrupt_object_is_opened_anew(user: Caller, service: Service) -> None:
    data = random_bytes(3000)
    object_id = user.store(data)
    with sqlite3.connect(service.content_file) as connection:
        connection.execute("UPDATE part SET data = ?", (random_bytes(3000, seed=9),))
    connection.close()
    assert code(user.call("GET", f"/objects/{object_id}/content")) == "object_corrupt"
    assert user.usage() == (0, 0)
    again = user.open(data)
    assert (again.status_code, again.json["id"], again.json["state"]) == (201, object_id, "open")
    assert user.store(data) == object_id
    assert user.call("GET", f"/objects/{object_id}/content").data == data
    assert user.usage() == (3000, 1)


@pytest.mark.req("BLOB-1")
def test_a_parts_body_is_checked_before_anything_is_stored(user: Caller, service: Service) -> None:
    object_id = user.open(TWO_PARTS).json["id"]
    second = pieces(TWO_PARTS)[1]
    path = f"/objects/{object_id}/parts/1"
    wrong = user.call("PUT", path, data=second, headers={"X-Content-SHA256": sha(b"x")})
    assert (wrong.status_code, code(wrong)) == (422, "digest_mismatch")
    over = user.put(object_id, 1, second + b"x")
    assert (over.status_code, code(over), over.json["error"]["allowed"]) == (413, "body_too_large", 1000)
    assert user.put(object_id, 1, second[:-1]).status_code == 400
    for digest in ("", "x" * 64, sha(second).upper(), sha(second)[:-1]):
        assert code(user.call("PUT", path, data=second, headers={"X-Content-SHA256": digest})) == "invalid_request"
    for index in ("2", "-1", "+1", "1.0", "x", "٣", "9" * 30):
        answer = user.call("PUT", f"/objects/{object_id}/parts/{index}", data=second)
        assert (answer.status_code, code(answer)) == (400, "invalid_request"), index
    assert user.put(object_id, 1, second, query_string={"complete": "yes"}).status_code == 400
    assert user.call("GET", f"/objects/{object_id}").json["present"] == []
    assert service.content.older(service.clock.now() + 1, 0, 10) == []


@pytest.mark.req("BLOB-1", "REST-2")
def test_a_body_needs_its_length_and_all_its_bytes(user: Caller) -> None:
    data = random_bytes(1000)
    object_id = user.open(data).json["id"]
    path, headers = f"/objects/{object_id}/parts/0", {"X-Content-SHA256": sha(data)}
    without = user.call("PUT", path, headers=headers, environ_overrides={"HTTP_TRANSFER_ENCODING": "chunked"})
    assert (without.status_code, code(without)) == (411, "length_required")
    short = user.call("PUT", path, data=data[:500], headers=headers, environ_overrides={"CONTENT_LENGTH": "1000"})
    assert (short.status_code, code(short)) == (400, "invalid_request")


@pytest.mark.req("BLOB-3")
def test_the_same_content_is_stored_once_in_an_account_and_apart_between_accounts(
    user: Caller, service: Service, seed: Seed
) -> None:
    data = random_bytes(2000)
    object_id = user.store(data)
    again = user.open(data, kind="result")
    assert (again.status_code, again.json["id"], again.json["kind"]) == (200, object_id, "input")
    assert (again.json["state"], again.json["present"], user.usage()) == ("complete", [0], (2000, 1))
    other = service.caller(seed.account("ayse"))
    theirs = other.open(data)
    assert (theirs.status_code, theirs.json["state"], theirs.json["present"]) == (201, "open", [])
    assert theirs.json["id"] != object_id
    assert other.usage() == (2000, 1)
    assert other.store(data) == theirs.json["id"]


@pytest.mark.req("BLOB-4", "BLOB-7")
def test_limits_are_told_with_what_is_allowed_and_used(service: Service, seed: Seed) -> None:
    caller = service.caller(seed.account(max_file_bytes=1000, max_bytes=1500, max_files=3))
    large = caller.open(random_bytes(1001))
    assert (large.status_code, code(large), large.json["error"]["allowed"]) == (413, "file_too_large", 1000)
    assert caller.open(random_bytes(1000)).status_code == 201
    over = caller.open(random_bytes(501, seed=1))
    assert (over.status_code, code(over)) == (403, "quota_exceeded")
    assert {name: over.json["error"][name] for name in ("limit", "allowed", "used")} == {
        "limit": "maxBytes", "allowed": 1500, "used": 1000,
    }  # fmt: skip
    assert caller.open(random_bytes(500, seed=1)).status_code == 201
    assert caller.open(b"").status_code == 201
    files = caller.open(random_bytes(0) + b"", kind="result")
    assert files.status_code == 200
    assert caller.call("DELETE", f"/objects/{files.json['id']}").status_code == 204
    assert caller.usage() == (1500, 2)


@pytest.mark.req("BLOB-7")
def test_files_are_limited(service: Service, seed: Seed) -> None:
    caller = service.caller(seed.account(max_files=1))
    assert caller.open(b"a").status_code == 201
    refused = caller.open(b"b")
    assert (code(refused), refused.json["error"]["limit"]) == ("quota_exceeded", "maxFiles")
    assert (refused.json["error"]["allowed"], refused.json["error"]["used"]) == (1, 1)


@pytest.mark.req("BLOB-1", "BLOB-7")
def test_a_batch_answers_each_item_like_a_single_opening(service: Service, seed: Seed) -> None:
    caller = service.caller(seed.account(max_file_bytes=100, max_files=2))
    known = caller.store(b"known")
    wanted = [
        {"size": 5, "sha256": sha(b"known"), "kind": "input"},
        {"size": 3, "sha256": sha(b"new"), "kind": "input"},
        {"size": 3, "sha256": sha(b"new"), "kind": "result"},
        {"size": 101, "sha256": sha(b"large"), "kind": "input"},
        {"size": 5, "sha256": sha(b"third"), "kind": "input"},
        {"size": -1, "sha256": sha(b"third"), "kind": "input"},
        {"size": 1, "sha256": sha(b"x"), "kind": "input", "tenant": "other"},
        7,
    ]
    answer = caller.call("POST", "/objects/batch", json={"objects": wanted})
    assert answer.status_code == 200
    items = answer.json["objects"]
    assert items[0]["id"] == known
    assert items[1]["state"] == "open"
    assert items[2]["id"] == items[1]["id"]
    codes = [item["error"]["code"] for item in items[3:]]
    assert codes == ["file_too_large", "quota_exceeded"] + ["invalid_request"] * 3
    assert items[6]["error"]["field"] == "tenant"
    assert caller.usage() == (8, 2)
    refused: tuple[object, ...] = ([], [wanted[0]] * 1001, None, {})
    for wrong in refused:
        assert caller.call("POST", "/objects/batch", json={"objects": wrong}).status_code == 400


@pytest.mark.req("REST-2")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": True}, "size"),
        ({"size": "1"}, "size"),
        ({"size": -1}, "size"),
        ({"size": 1.0}, "size"),
        ({"sha256": "A" * 64}, "sha256"),
        ({"sha256": None}, "sha256"),
        ({"size": 0}, "sha256"),
        ({"kind": "trial"}, "kind"),
        ({"accountId": "acc_12345678"}, "accountId"),
    ],
)
def test_an_opening_is_validated(user: Caller, change: dict[str, object], field: str) -> None:
    answer = user.call("POST", "/objects", json={"size": 1, "sha256": sha(b"x"), "kind": "input", **change})
    assert (answer.status_code, code(answer), answer.json["error"]["field"]) == (400, "invalid_request", field)


@pytest.mark.req("BLOB-2")
def test_of_racing_parts_with_different_bytes_one_is_stored(user: Caller, service: Service) -> None:
    contents = [random_bytes(PART_SIZE, seed=number % 2) for number in range(50)]
    object_id = user.open(random_bytes(PART_SIZE, seed=0)).json["id"]
    barrier = threading.Barrier(10)

    def put(number: int) -> tuple[int, int]:
        if number < 10:
            barrier.wait()
        return number % 2, user.put(object_id, 0, contents[number]).status_code

    with ThreadPoolExecutor(10) as pool:
        outcomes = Counter(pool.map(put, range(50)))
    winner = 0 if outcomes[0, 200] else 1
    assert outcomes == {(winner, 200): 25, (1 - winner, 409): 25}
    left = service.content.older(service.clock.now() + 1, 0, 10)
    assert [key.sha256 for _, key in left] == [sha(contents[winner])]


@pytest.mark.req("BLOB-1", "BLOB-2")
def test_racing_completes_all_succeed(user: Caller) -> None:
    data = random_bytes(5000)
    object_id = user.open(data).json["id"]
    user.put(object_id, 0, data)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: user.complete(object_id), range(50)))
    assert {(answer.status_code, answer.json["state"]) for answer in answers} == {(200, "complete")}


@pytest.mark.req("BLOB-1")
def test_of_racing_last_parts_one_completes(user: Caller) -> None:
    object_id = user.open(TWO_PARTS).json["id"]
    sent = list(enumerate(pieces(TWO_PARTS)))
    barrier = threading.Barrier(2)

    def put(part: tuple[int, bytes]) -> str:
        barrier.wait()
        return str(user.put(object_id, *part, query_string={"complete": "1"}).json["state"])

    with ThreadPoolExecutor(2) as pool:
        states = list(pool.map(put, sent))
    assert "complete" in states
    assert user.state(object_id) == "complete"


@pytest.mark.req("BLOB-3", "BLOB-7")
def test_racing_openings_make_one_object_and_never_pass_the_limit(service: Service, seed: Seed) -> None:
    caller = service.caller(seed.account(max_files=5))
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda number: caller.open(bytes([number % 8])), range(40)))
    made = [answer for answer in answers if answer.status_code == 201]
    assert len(made) == 5
    assert {answer.status_code for answer in answers} == {200, 201, 403}
    assert caller.usage() == (5, 5)


@pytest.mark.req("AUTH-6", "REST-2", "REST-3")
def test_foreign_objects_and_malformed_ids_are_unknown(user: Caller, service: Service, seed: Seed) -> None:
    object_id = user.store(b"mine")
    other = service.caller(seed.account("ayse"))
    calls = [
        ("GET", ""), ("GET", "/content"), ("HEAD", "/content"), ("DELETE", ""), ("POST", "/complete"),
        ("PUT", "/parts/0"),
    ]  # fmt: skip
    bodies = set()
    for name in (object_id, "obj_unknownunknown", "obj_%00", "job_12345678", "x" * 300, "obj_'; --"):
        for method, path in calls:
            answer = other.call(method, f"/objects/{name}{path}")
            assert answer.status_code == 404, (method, name)
            if method != "HEAD":
                bodies.add(answer.data)
    assert len(bodies) == 1
    assert user.state(object_id) == "complete"


@pytest.mark.req("REST-2", "REST-3")
def test_scopes_are_needed(service: Service, seed: Seed, account: str) -> None:
    reader = Caller(service.app, seed.token(account, scopes=("research:read",)))
    writer = Caller(service.app, seed.token(account, scopes=("research:write",)))
    object_id = writer.open(b"x").json["id"]
    for answer in (
        reader.open(b"y"), reader.put(object_id, 0, b"x"), reader.complete(object_id),
        reader.call("DELETE", f"/objects/{object_id}"), reader.call("POST", "/objects/batch", json={"objects": []}),
    ):  # fmt: skip
        assert (answer.status_code, answer.json["error"]["required"]) == (403, "research:write")
    for path in ("/objects", f"/objects/{object_id}", f"/objects/{object_id}/content"):
        answer = writer.call("GET", path)
        assert (answer.status_code, answer.json["error"]["required"]) == (403, "research:read")
    for token in ("mgu_" + "x" * 43, "nonsense"):
        answer = Caller(service.app, token).call("GET", "/objects")
        assert (answer.status_code, code(answer)) == (401, "invalid_token")
