"""Submitting a job over REST: once by its key, checked, pinned, within the account's limit."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa
from service.api.api_harness import SPEC, Api, entry
from sqlalchemy.exc import OperationalError
from support import Seed

from mingora_common.blobs import ObjectRef
from mingora_common.db.schema import jobs
from mingora_common.errors import UNAVAILABLE, ServiceError


def count_jobs(api: Api) -> int:
    with api.database.read() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(jobs)).scalar_one()


@pytest.mark.req("JOB-1", "CLI-8")
def test_a_job_is_made_pinned_and_hinted(api: Api, token: str, account: str) -> None:
    answer = api.submit(token, "first", inputs=[entry("a.py"), entry("b.py"), entry("c", objectId="obj_87654321")])
    assert answer.status_code == 201, answer.text
    job = answer.get_json()
    assert job["state"] == "queued" and job["attempt"] is None and job["reason"] is None
    assert (job["name"], job["key"], job["spec"]) == (SPEC["name"], "first", SPEC)
    assert [found["path"] for found in job["inputs"]] == ["a.py", "b.py", "c"] and job["results"] == []
    assert job["ranks"] == [] and job["usage"] is None and job["cancelRequested"] is False
    # Two files of one content are one object.
    assert api.pins.held == {
        job["id"]: [ObjectRef("obj_12345678", "a" * 64, 3), ObjectRef("obj_87654321", "a" * 64, 3)]
    }
    assert api.hints.sent == [("place", account)]


@pytest.mark.req("CLI-8")
def test_the_same_key_is_the_same_job_or_a_conflict(api: Api, token: str) -> None:
    files = [entry("a.py"), entry("b.py")]
    first = api.submit(token, inputs=files).get_json()
    api.pins.missing.add("obj_12345678")  # pins aren't touched again
    # The order of the files and the ids of their objects don't matter.
    again = api.submit(token, inputs=[entry("b.py", objectId="obj_99999999"), entry("a.py")])
    assert again.status_code == 200 and again.get_json() == first
    for spec, inputs in (
        ({**SPEC, "priority": 1}, files),
        (SPEC, [entry("a.py")]),
        (SPEC, [entry("a.py"), entry("c.py")]),
        (SPEC, [entry("a.py"), entry("b.py", executable=True)]),
        (SPEC, [entry("a.py"), entry("b.py", sha256="b" * 64)]),
        (SPEC, [entry("a.py"), entry("b.py", size=4)]),
    ):
        refused = api.submit(token, spec=spec, inputs=inputs)
        assert refused.status_code == 409
        assert refused.get_json()["error"]["code"] == "key_conflict"
        assert refused.get_json()["error"]["jobId"] == first["id"]
    assert count_jobs(api) == 1


@pytest.mark.req("AUTH-6", "CLI-8")
def test_keys_are_each_accounts_own(api: Api, token: str, seed: Seed) -> None:
    other = seed.token(seed.account("veli"))
    assert api.submit(token).status_code == 201
    assert api.submit(other, spec={**SPEC, "priority": 3}).status_code == 201


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize("key", [None, "", "ö", "x" * 201])
def test_a_key_is_needed(api: Api, token: str, key: str | None) -> None:
    headers = {} if key is None else {"Idempotency-Key": key.encode().decode("latin-1")}
    answer = api.call("POST", "/jobs", token, json={"spec": SPEC, "inputs": []}, headers=headers)
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == "Idempotency-Key"


@pytest.mark.req("JOB-1")
@pytest.mark.parametrize(
    ("body", "field"),
    [({"inputs": []}, "spec"), ({"spec": SPEC}, "inputs"), ({"spec": SPEC, "inputs": [], "owner": "x"}, "owner")],
)
def test_the_body_is_spec_and_inputs(api: Api, token: str, body: Any, field: str) -> None:
    answer = api.call("POST", "/jobs", token, json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == field


@pytest.mark.req("JOB-1")
def test_an_invalid_job_is_refused_with_all_its_problems(api: Api, token: str) -> None:
    spec = {**SPEC, "resources": {"cpu": 0, "cores": 4}}
    answer = api.submit(token, spec=spec, inputs=[entry("../x"), entry("job.json"), entry("a", size=-1)])
    error = answer.get_json()["error"]
    assert answer.status_code == 422 and error["code"] == "invalid_job"
    assert {problem["path"] for problem in error["problems"]} == {
        "resources.cpu", "resources.cores", "inputs[0].path", "inputs[1].path", "inputs[2].size"
    }  # fmt: skip
    assert count_jobs(api) == 0 and api.pins.held == {} and api.hints.sent == []


@pytest.mark.req("JOB-1")
def test_missing_inputs_are_named(api: Api, token: str) -> None:
    api.pins.missing.add("obj_12345678")
    answer = api.submit(token, inputs=[entry()])
    assert answer.status_code == 409
    assert answer.get_json()["error"]["objectIds"] == ["obj_12345678"]
    assert count_jobs(api) == 0


@pytest.mark.req("JOB-1")
def test_with_blobstore_away_nothing_is_made(api: Api, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise ServiceError(UNAVAILABLE, retry_after=2)

    monkeypatch.setattr(api.pins, "pin", away)
    answer = api.submit(token, inputs=[entry()])
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "2"
    assert count_jobs(api) == 0


@pytest.mark.req("BLOB-7")
def test_the_account_holds_no_more_jobs_than_its_limit(api: Api, seed: Seed) -> None:
    token = seed.token(seed.account("veli", max_jobs=2))
    assert api.submit(token, "1").status_code == 201
    assert api.submit(token, "2").status_code == 201
    refused = api.submit(token, "3", inputs=[entry()])
    assert refused.status_code == 403
    error = refused.get_json()["error"]
    assert (error["code"], error["limit"], error["allowed"], error["used"]) == ("quota_exceeded", "maxJobs", 2, 2)
    assert api.submit(token, "2").status_code == 200
    assert api.pins.held == {}


@pytest.mark.req("CLI-8", "BLOB-7")
def test_racing_submits_make_one_job_a_key_and_keep_the_limit(api: Api, seed: Seed) -> None:
    token = seed.token(seed.account("veli", max_jobs=3))
    statuses: list[int] = []
    barrier = threading.Barrier(20)

    def submit(key: str) -> None:
        barrier.wait()
        client = api.app.test_client()
        answer = client.post(
            "/api/research/v1/jobs",
            json={"spec": SPEC, "inputs": [entry()]},
            headers={"Authorization": f"Bearer {token}", "Idempotency-Key": key},
        )
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=submit, args=(f"k{number % 5}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count_jobs(api) == 3
    assert statuses.count(201) == 3 and set(statuses) <= {200, 201, 403}
    # Whoever lost has let go of its pins.
    with api.database.read() as connection:
        assert set(api.pins.held) == set(connection.execute(sa.select(jobs.c.id)).scalars())


@pytest.mark.req("JOB-1")
def test_after_an_unknown_outcome_the_pins_stay(api: Api, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OperationalError("COMMIT", None, Exception("the connection was lost"))

    monkeypatch.setattr("mingora_api.store.jobs.insert", broken)
    answer = api.submit(token, inputs=[entry()])
    assert answer.status_code == 503
    # The row may be there: only blobstore's sweep, which sees whether it is, may let go of its inputs.
    assert len(api.pins.held) == 1 and api.hints.sent == []
    monkeypatch.undo()
    assert api.submit(token, inputs=[entry()]).status_code == 201
