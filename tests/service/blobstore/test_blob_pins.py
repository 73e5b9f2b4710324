"""Pins, what deleting and releasing remove, what a lease may touch, and the sweep."""

from __future__ import annotations

import pytest
from blob_support import Answer, Caller, Service, code, random_bytes, sha
from support import Seed

from mingora_blobstore.domain import retention
from mingora_common.clock import HOUR
from mingora_common.db import schema
from mingora_common.ids import new_id

NODE = "node_12345678"


@pytest.mark.req("BLOB-1", "BLOB-7")
def test_a_pinned_object_stays_until_its_last_pin_goes(user: Caller, service: Service, account: str) -> None:
    data = random_bytes(1000)
    object_id = user.store(data)
    for owner in ("job_11111111", "job_11111111", "att_22222222"):
        assert service.pin(owner, account, (object_id, data)).json == {"pinned": 1}
    assert user.call("GET", f"/objects/{object_id}").json["pinned"] is True
    refused = user.call("DELETE", f"/objects/{object_id}")
    assert (refused.status_code, code(refused)) == (409, "object_in_use")
    assert service.release("job_11111111").status_code == 204
    assert user.state(object_id) == "complete"
    for _ in range(2):
        assert service.release("att_22222222").status_code == 204
    assert user.call("GET", f"/objects/{object_id}").status_code == 404
    assert (user.usage(), service.stored_bytes()) == ((0, 0), 0)


@pytest.mark.req("BLOB-1", "AUTH-6")
def test_pins_are_all_or_none(user: Caller, service: Service, seed: Seed, account: str) -> None:
    good, opened = user.store(b"good"), user.open(b"open").json["id"]
    foreign = service.caller(seed.account("ayse")).store(b"foreign")
    unknown = new_id("obj")
    refs = [(good, b"good"), (opened, b"open"), (foreign, b"foreign"), (unknown, b"x")]
    refused = service.pin("job_11111111", account, *refs)
    assert (refused.status_code, code(refused)) == (409, "input_missing")
    assert refused.json["error"]["objectIds"] == sorted([opened, foreign, unknown])
    for wrong in (b"else", b"longer"):
        assert service.pin("job_11111111", account, (good, b"good"), (good, wrong)).status_code == 409
    assert user.call("GET", f"/objects/{good}").json["pinned"] is False
    assert service.pin("job_11111111", account).json == {"pinned": 0}


@pytest.mark.req("BLOB-1")
def test_the_internal_routes_are_not_there_without_the_key(user: Caller, service: Service, account: str) -> None:
    data = b"x"
    object_id = user.store(data)
    for key in ("", "wrong", "k" * 41):
        assert service.pin("job_11111111", account, (object_id, data), key=key).status_code == 404
    client = service.app.test_client()
    assert client.delete("/internal/pins/job_11111111").status_code == 404
    assert service.pin("tok_11111111", account).status_code == 400
    assert service.pin("job_11111111", "x").status_code == 400
    assert user.call("GET", f"/objects/{object_id}").json["pinned"] is False


@pytest.mark.req("BLOB-7")
def test_releasing_leaves_an_upload_that_runs_anew(user: Caller, service: Service, account: str) -> None:
    data = random_bytes(1000)
    object_id = user.store(data)
    service.pin("job_11111111", account, (object_id, data))
    key = service.content.older(service.clock.now() + 1, 0, 1)[0][1]
    service.content.delete(key)
    assert user.call("GET", f"/objects/{object_id}/content").status_code == 409
    assert user.open(data).json["id"] == object_id
    service.release("job_11111111")
    assert user.put(object_id, 0, data).status_code == 200
    assert user.complete(object_id).status_code == 200
    assert user.usage() == (1000, 1)


@pytest.fixture
def job(seed: Seed, account: str) -> str:
    return seed.job(account)


@pytest.fixture
def lease(service: Service, seed: Seed, account: str, job: str) -> Caller:
    seed.work_token(account, NODE)
    return Caller(service.app, seed.work_token(account, NODE, lease_id=seed.lease(account, NODE, job)))


def reads(caller: Caller, object_id: str) -> set[int]:
    return {caller.call("GET", f"/objects/{object_id}{path}").status_code for path in ("", "/content")}


@pytest.mark.req("AUTH-6", "AUTH-9")
def test_a_lease_reads_its_jobs_inputs_and_no_others(
    user: Caller, lease: Caller, job: str, service: Service, account: str
) -> None:
    mine, other = user.store(b"mine"), user.store(b"other")
    service.pin(job, account, (mine, b"mine"))
    service.pin("job_11111111", account, (other, b"other"))
    assert (reads(lease, mine), reads(lease, other)) == ({200}, {404})
    service.release(job)
    assert reads(lease, mine) == {404}


@pytest.mark.req("AUTH-6")
def test_a_lease_sends_results_and_nothing_else(user: Caller, lease: Caller) -> None:
    result = lease.store(b"result", kind="result")
    assert reads(lease, result) == {200}
    assert (code(lease.open(b"x")), user.usage()) == ("invalid_request", (6, 1))
    item = {"size": 1, "sha256": sha(b"x"), "kind": "input"}
    batch = lease.call("POST", "/objects/batch", json={"objects": [item]})
    assert batch.json["objects"][0]["error"]["code"] == "invalid_request"
    refused: list[Answer] = [lease.call("GET", "/objects"), lease.call("DELETE", f"/objects/{result}")]
    assert {(answer.status_code, code(answer)) for answer in refused} == {(401, "invalid_token")}


@pytest.mark.req("AUTH-6", "BLOB-3")
def test_a_result_with_an_inputs_content_is_that_object_but_is_not_shown(user: Caller, lease: Caller) -> None:
    object_id = user.store(b"same")
    again = lease.open(b"same", kind="result")
    assert (again.status_code, again.json["id"], again.json["kind"]) == (200, object_id, "input")
    assert reads(lease, object_id) == {404}
    assert lease.put(object_id, 0, b"same").status_code == 200
    assert lease.complete(object_id).status_code == 200
    assert code(lease.put(object_id, 0, b"else")) == "object_frozen"
    assert user.call("GET", f"/objects/{object_id}/content").data == b"same"


@pytest.mark.req("AUTH-6")
def test_a_lease_is_bound_to_its_account(lease: Caller, service: Service, seed: Seed) -> None:
    other = service.caller(seed.account("ayse"))
    object_id = other.store(b"theirs", kind="result")
    assert reads(lease, object_id) == {404}
    assert lease.put(object_id, 0, b"theirs").status_code == 404
    assert lease.complete(object_id).status_code == 404
    assert lease.open(b"theirs", kind="result").status_code == 201


@pytest.mark.req("AUTH-9")
def test_a_node_token_opens_nothing(service: Service, seed: Seed, account: str, user: Caller) -> None:
    object_id = user.store(b"x", kind="result")
    node = Caller(service.app, seed.work_token(account, NODE))
    answers = [node.open(b"y", kind="result"), node.put(object_id, 0, b"x"), node.complete(object_id)]
    answers += [node.call("GET", path) for path in ("/objects", f"/objects/{object_id}")]
    answers += [node.call("GET", f"/objects/{object_id}/content"), node.call("DELETE", f"/objects/{object_id}")]
    assert {(answer.status_code, code(answer)) for answer in answers} == {(401, "invalid_token")}


@pytest.mark.req("BLOB-7")
def test_the_sweep_removes_what_nobody_touches_or_holds(user: Caller, service: Service, account: str, job: str) -> None:
    held, idle = user.store(b"held"), user.store(b"idle")
    service.pin(job, account, (held, b"held"))
    upload = user.open(random_bytes(10)).json["id"]
    corrupt = user.call("POST", "/objects", json={"size": 3, "sha256": sha(b"lie"), "kind": "input"}).json["id"]
    user.put(corrupt, 0, b"abc")
    user.complete(corrupt)
    service.clock.advance(retention.UNTOUCHED / 1000)
    assert not any(service.sweep().values())
    user.open(b"idle")  # touches it
    service.clock.advance(1)
    assert service.sweep() == {"pins": 0, "uploads": 1, "objects": 0, "corrupt": 1, "orphans": 0}
    assert user.usage() == (8, 2)
    service.clock.advance(retention.UNTOUCHED / 1000)
    assert service.sweep()["objects"] == 1
    left = user.call("GET", "/objects").json["objects"]
    assert [item["id"] for item in left] == [held]
    assert {upload, idle, corrupt}.isdisjoint({held})
    assert (user.usage(), service.stored_bytes()) == ((4, 1), 4)
    assert not any(service.sweep().values())


@pytest.mark.req("BLOB-7")
def test_the_sweep_releases_pins_of_unknown_jobs_and_superseded_attempts(
    user: Caller, service: Service, seed: Seed, account: str, job: str
) -> None:
    attempts = [new_id("att"), new_id("att")]
    for number, attempt in enumerate(attempts, start=1):
        seed.insert(
            schema.attempts, id=attempt, job_id=job, account_id=account, tenant_id=seed.tenant_of(account),
            number=number, ranks=1, state="failed", created_at=0, ready_deadline_at=0, ended_at=1, detail={},
        )  # fmt: skip
    owners = {job: b"1", attempts[1]: b"2", attempts[0]: b"3", new_id("job"): b"4", new_id("att"): b"5"}
    ids = {owner: user.store(data) for owner, data in owners.items()}
    for owner, data in owners.items():
        service.pin(owner, account, (ids[owner], data))
    service.clock.advance(HOUR / 1000)
    assert service.sweep()["pins"] == 0
    service.clock.advance(1)
    assert service.sweep()["pins"] == 3
    left = user.call("GET", "/objects").json["objects"]
    assert {item["id"] for item in left} == {ids[job], ids[attempts[1]]}
    assert user.usage() == (2, 2)


@pytest.mark.req("BLOB-7")
def test_a_pin_that_is_asked_again_counts_from_then(user: Caller, service: Service, account: str) -> None:
    object_id = user.store(b"x")
    service.pin("job_11111111", account, (object_id, b"x"))
    service.clock.advance(HOUR / 1000)
    service.pin("job_11111111", account, (object_id, b"x"))
    service.clock.advance(HOUR / 1000)
    assert service.sweep()["pins"] == 0
