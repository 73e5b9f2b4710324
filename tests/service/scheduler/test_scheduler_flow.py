"""One job's way through the scheduler, and every way it may end."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from scheduler_platform import Platform, Worker
from support import bearer

from mingora_common.db import schema
from mingora_common.db.views import job_isolation

FILE: dict[str, Any] = {
    "path": "results/a.txt",
    "objectId": "obj_0123456789",
    "size": 3,
    "sha256": "a" * 64,
    "executable": False,
}


@pytest.mark.req("JOB-2", "JOB-3", "JOB-9")
def test_a_job_goes_from_claim_to_result(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    assert platform.hints.sent == [("place", platform.account)]
    platform.place()
    assert platform.status(job).state == "reserved"
    grant = worker.claim()
    assert (grant["jobId"], grant["attempt"], grant["rank"], grant["ranks"]) == (job, 1, 0, 1)
    assert grant["ttlSeconds"] == 60 and grant["spec"]["command"] == ["python", "main.py"]
    assert worker.beat().get_json() == {"ttlSeconds": 60, "start": False, "stop": None}
    assert worker.ready().get_json()["start"] is True
    assert worker.ready().get_json()["start"] is True
    assert platform.status(job).state == "running"
    assert worker.beat(started=True, usage={"cpuSeconds": 0.5, "memoryMiB": 12}).get_json()["stop"] is None
    assert worker.log(0, b"hello\n").get_json() == {"acked": 6}
    usage = {"cpuSeconds": 1.5, "maxMemoryMiB": 80}
    answer = worker.report(exitCode=0, logBytes=6, results=[FILE], usage=usage)
    assert answer.get_json() == {"state": "succeeded"}
    status = platform.status(job)
    assert (status.state, status.exit_code, status.reason_code) == ("succeeded", 0, None)
    assert status.results == [{**FILE, "rank": 0}] and status.usage == usage
    assert status.detail["ranks"][0]["state"] == "reported" and status.detail["ranks"][0]["nodeName"] == "node-1"
    assert platform.events(job) == [
        "attempt.reserved", "lease.claimed", "lease.ready", "attempt.started", "lease.reported", "attempt.finished",
    ]  # fmt: skip
    assert [ref.id for ref in platform.pins.held[grant["attemptId"]]] == [FILE["objectId"]]
    assert ("archive_log", grant["attemptId"]) in platform.hints.sent
    assert {f"node:{worker.id}", f"job:{job}", f"log:{grant['attemptId']}:0"} <= set(platform.waker.topics)


@pytest.mark.req("WORK-7", "JOB-9")
def test_the_first_ready_says_under_what_a_rank_runs(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.claim()
    for field, value in (("isolation", {"a": []}), ("isolation", 1), ("warnings", "x"), ("warnings", [1])):
        refused = worker.ready(**{field: value})
        assert refused.status_code == 400 and refused.get_json()["error"]["field"].partition(".")[0] == field
    profile = {"network": "host", "quota": "tmpfs"}
    warning = "The job shares the machine's network."
    assert worker.ready(isolation=profile, warnings=[warning, "b\0" * 2000]).status_code == 200
    assert worker.ready(isolation={"network": "none"}, warnings=["later"]).status_code == 200
    assert worker.beat(started=True).status_code == 200
    assert worker.ready().status_code == 200
    assert worker.report(exitCode=0, warnings=["at the end"]).status_code == 200
    stored = platform.all(sa.select(job_isolation))
    assert [(row.rank, row.isolation) for row in stored] == [(0, profile)]
    events = platform.all(sa.select(schema.events).where(schema.events.c.job_id == job).order_by(schema.events.c.seq))
    assert [event.type for event in events][2:6] == ["lease.ready", "job.warning", "job.warning", "attempt.started"]
    told = [event.data for event in events if event.type == "job.warning"]
    assert told[0] == {"attempt": 1, "rank": 0, "nodeId": worker.id, "nodeName": "node-1", "message": warning}
    assert [len(data["message"]) for data in told] == [len(warning), 2000, len("at the end")]


@pytest.mark.req("WORK-7", "JOB-8")
@pytest.mark.parametrize("code", ["output_limit", "log_limit", "engine_lost"])
def test_the_ends_that_only_a_container_has(platform: Platform, worker: Worker, code: str) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    reason = {"code": code, "message": "It did."}
    assert worker.report("failed", reason=reason).get_json() == {"state": "failed"}
    assert (platform.status(job).state, platform.status(job).reason_code) == ("failed", code)
    assert platform.all(sa.select(job_isolation)) == []


@pytest.mark.req("JOB-9")
def test_the_same_claim_gets_the_same_lease_and_another_claim_none(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    first = worker.claim()
    again = worker.claim()
    assert {**first, "token": ""} == {**again, "token": ""} and first["token"] != again["token"]
    worker.lease = first
    assert worker.beat().status_code == 401
    worker.lease = again
    assert worker.beat().status_code == 200
    assert worker.claim("another-claim-0123", status=409)["error"]["code"] == "node_busy"


@pytest.mark.req("JOB-4")
def test_the_same_report_is_answered_again_under_its_dead_token(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    first = worker.report(results=[FILE])
    before = platform.dump()
    again = worker.report(results=[FILE])
    assert first.get_json() == again.get_json() == {"state": "succeeded"}
    other = worker.report(results=[])
    assert (other.status_code, other.get_json()["error"]["code"]) == (409, "lease_lost")
    assert worker.beat().status_code == 401
    assert worker.log(0, b"late").status_code == 401
    assert platform.dump() == before
    platform.clock.advance(601)
    assert worker.report(results=[FILE]).status_code == 401


@pytest.mark.req("JOB-4", "AUTH-4")
def test_a_replay_needs_the_nodes_own_token_alive(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    worker.report()
    platform.seed.revoke(worker.token)
    assert worker.report().status_code == 401


@pytest.mark.req("JOB-7")
def test_a_silent_worker_loses_its_lease_and_the_job_fails_with_that_reason(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    platform.clock.advance(59)
    platform.expire()
    assert platform.status(job).state == "running"
    assert worker.beat().status_code == 200
    platform.clock.advance(60)
    assert worker.beat().get_json()["error"]["code"] == "lease_lost"
    platform.expire()
    status = platform.status(job)
    assert (status.state, status.reason_code, status.retry_at) == ("failed", "lease_lost", None)
    assert platform.events(job)[-2:] == ["lease.lost", "attempt.finished"]
    before = platform.dump()
    assert worker.report().status_code == 401
    assert platform.dump() == before


@pytest.mark.req("JOB-9")
def test_a_reservation_that_nobody_claims_goes_to_another_node(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    platform.clock.advance(31)
    platform.expire()
    status = platform.status(job)
    assert (status.state, status.attempt) == ("queued", 1)
    other = platform.worker(2)
    platform.waiting(other)
    assert other.claim()["attempt"] == 2
    assert other.ready().get_json()["start"] is True
    other.report("failed", exitCode=1)
    assert platform.status(job).state == "failed"


@pytest.mark.req("JOB-3")
def test_a_cancel_rides_on_the_heartbeat(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    platform.cancel(job)
    platform.carry_out_cancel(job)
    assert platform.status(job).state == "stopping"
    assert worker.beat().get_json()["stop"] == {"reason": "cancelled", "graceSeconds": 10}
    answer = worker.report("cancelled", reason={"code": "cancelled", "message": "m"}, signal=15)
    assert answer.get_json() == {"state": "cancelled"}
    assert platform.events(job).count("job.cancel_requested") == 1
    assert platform.status(job).state == "cancelled"


@pytest.mark.req("JOB-3")
def test_cancelling_a_reserved_job_ends_it_at_once(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    platform.cancel(job)
    status = platform.status(job)
    assert (status.state, status.detail["ranks"][0]["state"]) == ("cancelled", "released")
    worker.claim(status=204)


@pytest.mark.req("JOB-1")
def test_a_cancel_that_came_too_late_is_told_before_the_end_and_never_after(
    platform: Platform, worker: Worker
) -> None:  # fmt: skip
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    platform.seed.insert(schema.cancel_requests, job_id=job, at=platform.clock.now(), actor="test")
    worker.report()  # before the hint is carried out
    history = platform.events(job)
    assert history[-3:] == ["job.cancel_requested", "lease.reported", "attempt.finished"]
    platform.carry_out_cancel(job)
    assert platform.events(job) == history and platform.status(job).state == "succeeded"


@pytest.mark.req("JOB-3")
def test_a_cancelled_queued_job_is_never_placed(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.cancel(job)
    platform.waiting(worker)
    assert platform.status(job).state == "cancelled" and platform.events(job) == []  # api tells of it
    worker.claim(status=204)


@pytest.mark.req("JOB-8")
def test_a_failure_is_tried_again_when_the_job_asks_for_it(platform: Platform, worker: Worker) -> None:
    retry = {"max": 1, "onExitCodes": [75], "onLogPatterns": ["out of luck"]}
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "retry": retry}
    job = platform.seed.job(platform.account, spec=spec)
    platform.waiting(worker)
    worker.run()
    worker.log(0, b"we are out ")
    worker.log(11, b"of luck today")
    worker.report("failed", exitCode=1, logBytes=24)
    status = platform.status(job)
    assert (status.state, status.retry_at) == ("queued", platform.clock.now() + 5000)
    assert platform.events(job)[-1] == "job.retrying"
    platform.waiting(worker)
    assert platform.status(job).state == "queued"
    platform.clock.advance(5)
    platform.waiting(worker)
    worker.run()
    assert worker.lease["attempt"] == 2
    worker.report("failed", exitCode=75)
    assert platform.status(job).state == "failed"


@pytest.mark.req("JOB-3")
def test_a_group_starts_together_and_fails_together(platform: Platform) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    job = platform.seed.job(platform.account, spec=spec)
    first, second = platform.worker(1), platform.worker(2)
    platform.waiting(first)
    assert platform.status(job).state == "queued"
    platform.waiting(first, second)
    first.claim()
    second.claim()
    assert sorted([first.lease["rank"], second.lease["rank"]]) == [0, 1]
    assert first.ready().get_json()["start"] is False
    assert second.ready().get_json()["start"] is True
    assert first.beat().get_json()["start"] is True
    assert first.report("failed", exitCode=3).get_json() == {"state": "stopping"}
    assert second.beat().get_json()["stop"]["reason"] == "peer_failed"
    reason = {"code": "peer_failed", "message": "m"}
    assert second.report("cancelled", reason=reason, results=[FILE]).get_json() == {"state": "failed"}
    status = platform.status(job)
    assert (status.state, status.reason_code, status.exit_code) == ("failed", "exit_code", 3)
    assert status.results == [{**FILE, "rank": second.lease["rank"]}]


@pytest.mark.req("JOB-3")
def test_a_group_that_doesnt_get_ready_in_time_fails(platform: Platform) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    job = platform.seed.job(platform.account, spec=spec)
    first, second = platform.worker(1), platform.worker(2)
    platform.waiting(first, second)
    first.claim()
    second.claim()
    first.ready()
    for _ in range(12):
        platform.clock.advance(50)
        first.beat()
        second.beat()
    platform.expire()
    assert first.beat().get_json()["stop"]["reason"] == "ready_deadline"
    for _ in range(12):
        platform.clock.advance(50)
        first.beat()
        second.beat()
    platform.expire()
    assert (platform.status(job).state, platform.status(job).reason_code) == ("failed", "ready_deadline")
    assert first.beat().status_code == 401


@pytest.mark.req("AUTH-9")
def test_a_claim_renews_the_nodes_token_and_needs_no_user_token(platform: Platform, worker: Worker) -> None:
    for _ in range(10):
        platform.clock.advance(29 * 86400)
        worker.claim(status=204)
    platform.clock.advance(30 * 86400)
    worker.claim(status=401)


@pytest.mark.req("AUTH-9")
def test_a_lease_keeps_the_nodes_token_alive(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    expiry = sa.select(schema.work_tokens.c.expires_at).where(schema.work_tokens.c.kind == "node")
    before = platform.one(expiry).expires_at
    platform.clock.advance(50)
    worker.beat()
    assert platform.one(expiry).expires_at == before + 50_000


@pytest.mark.req("BLOB-7", "JOB-2")
def test_results_that_arent_there_are_refused_and_nothing_changes(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    platform.pins.missing.add(FILE["objectId"])
    before = platform.dump()
    answer = worker.report(results=[FILE])
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (409, "input_missing")
    assert platform.dump() == before
    assert worker.report("failed", reason={"code": "result_refused", "message": "m"}).status_code == 200


@pytest.mark.req("WORK-6")
def test_a_report_waits_for_the_whole_log(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    worker.log(0, b"abc")
    for size in (2, 4):
        answer = worker.report(logBytes=size)
        assert (answer.status_code, answer.get_json()["error"]["code"]) == (409, "log_incomplete")
        assert answer.get_json()["error"]["acked"] == 3


@pytest.mark.req("JOB-4")
def test_no_success_before_the_start(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.claim()
    assert worker.report("succeeded").get_json()["error"]["code"] == "lease_lost"
    assert worker.beat(started=True).get_json()["error"]["code"] == "lease_lost"


@pytest.mark.req("JOB-3")
def test_ready_with_other_inputs_is_refused(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.claim()
    assert worker.ready(inputsDigest="0" * 64).get_json()["error"]["field"] == "inputsDigest"


@pytest.mark.req("JOB-2")
def test_a_paused_node_waits_without_being_placed_on(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)

    def pause(body: dict[str, Any]) -> int:
        path = f"/api/research/v1/nodes/{worker.id}/pause"
        return int(platform.client.post(path, json=body, headers=bearer(worker.token)).status_code)

    worker.claim(status=204)
    assert pause({"paused": True, "reason": "disk"}) == 204
    platform.waiting(worker)
    assert platform.status(job).state == "queued"
    assert pause({"paused": False, "reason": None}) == 204
    platform.waiting(worker)
    assert platform.status(job).state == "reserved"


@pytest.mark.req("JOB-7")
def test_removing_a_node_ends_its_lease_as_lost(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    path = f"/api/research/v1/nodes/{worker.id}"
    assert platform.client.delete(path, headers=bearer(platform.user)).status_code == 204
    assert platform.client.delete(path, headers=bearer(platform.user)).status_code == 404
    assert (platform.status(job).state, platform.status(job).reason_code) == ("failed", "lease_lost")
    assert worker.beat().status_code == 401
    worker.claim(status=401)


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_nothing_is_placed_on_a_node_that_couldnt_claim_it(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    platform.seed.revoke(worker.token)
    platform.place()
    assert platform.status(job).state == "queued"


@pytest.mark.req("JOB-9")
def test_nothing_is_placed_on_a_node_that_stopped_asking(platform: Platform, worker: Worker) -> None:
    job = platform.seed.job(platform.account)
    worker.claim(status=204)
    platform.clock.advance(20)
    platform.place()
    assert platform.status(job).state == "queued"


@pytest.mark.req("JOB-3", "JOB-6")
def test_a_groups_usage_and_exit_code_are_put_together(platform: Platform) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    job = platform.seed.job(platform.account, spec=spec)
    workers = [platform.worker(1), platform.worker(2)]
    platform.waiting(*workers)
    for each in workers:
        each.claim()
    for each in workers:
        each.ready()
    for seconds, memory, each in ((1.5, 10, workers[0]), (2.25, 7, workers[1])):
        each.report(exitCode=0, usage={"cpuSeconds": seconds, "maxMemoryMiB": memory})
    status = platform.status(job)
    assert (status.state, status.exit_code) == ("succeeded", 0)
    assert status.usage == {"cpuSeconds": 3.75, "maxMemoryMiB": 10}
    assert [rank["exitCode"] for rank in status.detail["ranks"]] == [0, 0]


@pytest.mark.req("JOB-3")
def test_a_group_is_queued_again_when_one_of_it_never_claims(platform: Platform) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    job = platform.seed.job(platform.account, spec=spec)
    first, second = platform.worker(1), platform.worker(2)
    platform.waiting(first, second)
    first.claim()
    platform.clock.advance(31)
    platform.expire()
    assert first.beat().get_json()["stop"] == {"reason": "peer_failed", "graceSeconds": 10}
    first.report("cancelled", reason={"code": "peer_failed", "message": "m"})
    status = platform.status(job)
    assert (status.state, status.reason_code) == ("queued", "not_claimed")
    platform.waiting(first, second)
    assert first.claim()["attempt"] == 2


@pytest.mark.req("JOB-8")
def test_a_reservation_that_nobody_claimed_uses_up_no_retry(platform: Platform, worker: Worker) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "retry": {"max": 1}}
    job = platform.seed.job(platform.account, spec=spec)
    platform.waiting(worker)
    platform.clock.advance(31)
    platform.expire()
    platform.waiting(worker)
    worker.run()
    worker.report("failed", exitCode=1)
    assert (platform.status(job).state, platform.status(job).attempt) == ("queued", 2)


@pytest.mark.req("JOB-3", "JOB-8")
def test_a_job_whose_cancel_was_requested_isnt_tried_again(platform: Platform, worker: Worker) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "retry": {"max": 1}}
    job = platform.seed.job(platform.account, spec=spec)
    platform.waiting(worker)
    worker.run()
    platform.seed.insert(schema.cancel_requests, job_id=job, at=platform.clock.now(), actor="test")
    worker.report("failed", exitCode=1)
    status = platform.status(job)
    assert (status.state, status.retry_at) == ("failed", None)


@pytest.mark.req("JOB-3", "JOB-1")
@pytest.mark.parametrize("end", ["stopped", "silent", "unclaimed"])
def test_a_job_to_be_cancelled_whose_worker_ends_first_is_cancelled(
    platform: Platform, worker: Worker, end: str
) -> None:  # fmt: skip
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    if end != "unclaimed":
        worker.run()
    platform.seed.insert(schema.cancel_requests, job_id=job, at=platform.clock.now(), actor="test")
    if end == "stopped":
        worker.report("failed", reason={"code": "worker_stopped", "message": "The worker was stopped."})
    else:
        platform.clock.advance(61)
        platform.expire()
    assert platform.status(job).state == "cancelled"
    assert platform.events(job).count("job.cancel_requested") == 1
    history = platform.events(job)
    platform.carry_out_cancel(job)
    platform.waiting(worker)
    worker.claim(status=204)
    assert platform.events(job) == history and platform.status(job).state == "cancelled"


@pytest.mark.req("JOB-9")
def test_a_node_that_has_worked_gets_nothing_before_it_asks_again(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account, key="1")
    platform.waiting(worker)
    worker.run()
    worker.report()
    second = platform.seed.job(platform.account, key="2")
    platform.place()
    assert platform.status(second).state == "queued"
