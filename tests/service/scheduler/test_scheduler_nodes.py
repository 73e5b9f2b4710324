"""Registration, the list of nodes, and explain over HTTP."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from scheduler_platform import V1, Platform, Worker, node_record
from support import bearer

from mingora_common.db import schema


def _register(platform: Platform, token: str, **record: Any) -> Any:
    return platform.client.post(f"{V1}/nodes", json=node_record(**record), headers=bearer(token))


def _nodes(platform: Platform) -> list[dict[str, Any]]:
    return list(platform.client.get(f"{V1}/nodes", headers=bearer(platform.user)).get_json()["nodes"])


def _explain(platform: Platform, job: str) -> dict[str, Any]:
    return dict(platform.client.get(f"{V1}/explain/{job}", headers=bearer(platform.user)).get_json())


@pytest.mark.req("JOB-2", "AUTH-9")
def test_the_same_key_is_the_same_node_with_a_new_token(platform: Platform) -> None:
    first = _register(platform, platform.user)
    again = _register(platform, platform.user, name="other")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json()["id"] == again.get_json()["id"] and again.get_json()["name"] == "other"
    assert first.get_json()["ttlSeconds"] == 30 * 86400
    assert _register(platform, first.get_json()["token"]).status_code == 401
    by_node = _register(platform, again.get_json()["token"], name="third", cpu=2)
    assert (by_node.status_code, by_node.get_json()["token"]) == (200, None)
    assert by_node.get_json()["tokenId"] == again.get_json()["tokenId"]
    assert [(node["name"], node["cpu"]) for node in _nodes(platform)] == [("third", 2)]


@pytest.mark.req("AUTH-9")
def test_a_node_token_registers_no_other_node(platform: Platform, worker: Worker) -> None:
    before = platform.dump()
    assert _register(platform, worker.token, key=2).get_json()["error"]["code"] == "invalid_token"
    assert platform.dump() == before


@pytest.mark.req("AUTH-3", "AUTH-9")
def test_only_hashes_of_tokens_are_stored(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.claim()
    text = repr(platform.dump())
    assert worker.token not in text and worker.lease["token"] not in text


@pytest.mark.req("BLOB-7")
def test_the_limit_on_nodes(platform: Platform) -> None:
    with platform.seed.engine.begin() as connection:
        connection.execute(sa.update(schema.account_limits).values(max_nodes=2))
    with ThreadPoolExecutor(4) as pool:
        tokens = [platform.user] * 4
        clients = [platform.app.test_client() for _ in tokens]
        answers = list(
            pool.map(
                lambda n: clients[n].post(f"{V1}/nodes", json=node_record(n), headers=bearer(tokens[n])).status_code,
                range(4),
            )
        )
    assert sorted(answers) == [201, 201, 403, 403]
    refused = _register(platform, platform.user, key=99).get_json()["error"]
    assert (refused["code"], refused["limit"], refused["allowed"], refused["used"]) == (
        "quota_exceeded", "maxNodes", 2, 2,
    )  # fmt: skip
    known = _nodes(platform)[0]["name"].removeprefix("node-")
    assert _register(platform, platform.user, key=int(known)).status_code == 200


WRONG_RECORDS: list[tuple[str, Any]] = [
    ("nodeKey", "abc"), ("nodeKey", "g" * 32), ("nodeKey", None), ("name", ""), ("name", "a\nb"),
    ("name", "x" * 101), ("name", "\ud800"), ("cpu", 0), ("cpu", True), ("cpu", 1.5), ("memoryMiB", 2**60),
    ("gpu", {"index": 0}), ("gpu", []), ("runtimes", []), ("runtimes", ["vm"]), ("runtimes", ["native", "native"]),
    ("imageDigest", "latest"), ("fingerprint", "sha256:xyz"), ("allowClusterNetwork", 1), ("labels", []),
    ("labels", {"a b": "c"}), ("labels", {"a": 1}), ("data", ["lower"]), ("data", "A"), ("machineId", "m\x00"),
    ("data", ["A\n"]), ("unknown", 1), ("isolation", []), ("isolation", "none"), ("isolation", {"a b": 1}),
    ("isolation", {"": 1}), ("isolation", {"a" * 41: 1}), ("isolation", {"a": []}), ("isolation", {"a": {}}),
    ("isolation", {"a": "x" * 201}), ("isolation", {"a": "\x1b"}), ("isolation", {"a": "\ud800"}),
    ("isolation", {"a": 2**53 + 1}), ("isolation", {"a": -(10**400)}), ("isolation", {"a": 1e300}),
    ("isolation", {f"n{n}": n for n in range(41)}),
]  # fmt: skip


@pytest.mark.req("JOB-2")
def test_a_wrong_record_is_refused_by_name(platform: Platform) -> None:
    for field, value in WRONG_RECORDS:
        answer = _register(platform, platform.user, **{field: value})
        assert answer.status_code == 400, (field, value)
        assert answer.get_json()["error"]["field"].partition(".")[0] == field
    assert platform.all(sa.select(schema.nodes)) == []


@pytest.mark.req("JOB-2")
def test_the_list_shows_what_each_node_does(platform: Platform, worker: Worker) -> None:
    assert _nodes(platform)[0]["state"] == "away"
    worker.claim(status=204)
    assert _nodes(platform)[0]["state"] == "idle"
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.claim()
    node = _nodes(platform)[0]
    assert node["state"] == "busy"
    assert node["lease"] == {"jobId": job, "attempt": 1, "rank": 0, "state": "claimed"}
    assert node["lastSeenAt"] == "2027-01-15T08:00:00.000Z"


@pytest.mark.req("WORK-7")
def test_the_profile_that_a_node_proved_is_listed_until_it_proves_another(platform: Platform, worker: Worker) -> None:
    assert _nodes(platform)[0]["isolation"] is None
    full = {f"n{n}": "x" * 200 for n in range(35)}
    profile = {**full, "network": "none", "pids": 512, "share": 0.5, "seccomp": True, "apparmor": None}
    assert _register(platform, platform.user, isolation=profile).status_code == 200
    assert _nodes(platform)[0]["isolation"] == profile
    refused = _register(platform, platform.user, isolation={**profile, "pids": []}).get_json()["error"]
    assert refused["field"] == "isolation.pids" and refused["message"].startswith("isolation.pids must be a text of")
    assert _register(platform, platform.user, isolation=None).status_code == 200
    assert _nodes(platform)[0]["isolation"] is None


@pytest.mark.req("JOB-5", "AUTH-6")
def test_a_node_gets_only_its_own_accounts_jobs(platform: Platform) -> None:
    other = platform.seed.account("eve")
    job = platform.seed.job(platform.account)
    stranger = platform.worker(7, account=other)
    stranger.claim(status=204)
    platform.place()
    platform.place(other)
    assert platform.status(job).state == "queued"


@pytest.mark.req("JOB-6")
def test_one_gpu_of_a_machine_takes_one_lease_over_all_accounts(platform: Platform) -> None:
    other = platform.seed.account("eve")
    gpu = {"index": 0, "uuid": "GPU-1", "name": "x", "memoryMiB": 1}
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"gpu": 1}}
    mine, theirs = platform.seed.job(platform.account, spec=spec), platform.seed.job(other, spec=spec)
    first = platform.worker(1, machineId="m", gpu=gpu)
    second = platform.worker(2, account=other, machineId="m", gpu=gpu)
    first.claim(status=204)
    second.claim(status=204)
    platform.place()
    platform.place(other)
    assert [platform.status(job).state for job in (mine, theirs)] == ["reserved", "queued"]
    first.run()
    first.report()
    second.claim(status=204)
    platform.place(other)
    assert platform.status(theirs).state == "reserved"


@pytest.mark.req("JOB-8")
def test_explain_says_what_each_node_lacks_and_doing_it_starts_the_job(platform: Platform) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"cpu": 16}, "data": ["WIKI"]}
    job = platform.seed.job(platform.account, spec=spec)
    assert "No worker" in _explain(platform, job)["summary"]
    worker = platform.worker()
    worker.claim(status=204)
    answer = _explain(platform, job)
    assert answer["waiting"] is True and answer["state"] == "queued" and len(answer["known"]) > 3
    assert [problem["code"] for problem in answer["nodes"][0]["problems"]] == ["cpu", "data"]
    worker = platform.worker(cpu=16, data=["WIKI"])
    assert _explain(platform, job)["nodes"][0]["problems"] == []
    platform.waiting(worker)
    assert _explain(platform, job) == {
        "jobId": job, "state": "reserved", "waiting": False, "nodes": [], "known": answer["known"],
        "summary": "Workers have been chosen and make ready.",
    }  # fmt: skip


@pytest.mark.req("JOB-9")
def test_old_jobs_dont_slow_placement(platform: Platform, worker: Worker) -> None:
    with platform.seed.engine.begin() as connection:
        now = platform.clock.now()
        rows = [{"i": f"{index:08}", "at": now - 10_000_000 + index} for index in range(10_000)]
        connection.execute(
            sa.text(
                "INSERT INTO jobs (id, account_id, tenant_id, idempotency_key, fingerprint, name, priority, spec, "
                "inputs, created_at) "
                f"VALUES ('job_' || :i, '{platform.account}', 't', :i, 'f', 'n', 0, '{{}}', '[]', :at)"
            ),
            rows,
        )
        connection.execute(
            sa.text(
                "INSERT INTO attempts (id, job_id, account_id, tenant_id, number, ranks, state, final, created_at, "
                "ready_deadline_at, ended_at, detail) "
                f"VALUES ('att_' || :i, 'job_' || :i, '{platform.account}', 't', 1, 1, 'succeeded', 1, :at, :at, :at, "
                "'{\"ranks\": []}')"
            ),
            rows,
        )
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    started = time.perf_counter()
    platform.place()
    took = time.perf_counter() - started
    assert platform.status(job).state == "reserved"
    assert took < 0.5, f"placement took {took:.3f} s"
