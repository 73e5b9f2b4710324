"""Who may call what, made from the route table; and what a stale or foreign lease may do: nothing."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from scheduler_platform import Platform, Worker, node_record
from support import bearer

from mingora_common.auth import LEASE, NODE, READ, SCOPES, USER, WORK, WRITE
from mingora_common.db import schema
from mingora_common.http import API_PREFIX

KINDS = {
    ("POST", "/nodes"): (WORK, {USER, NODE}),
    ("GET", "/nodes"): (READ, {USER}),
    ("DELETE", "/nodes/<node_id>"): (WRITE, {USER}),
    ("POST", "/nodes/<node_id>/pause"): (WORK, {NODE}),
    ("POST", "/nodes/<node_id>/claim"): (WORK, {NODE}),
    ("POST", "/nodes/<node_id>/ready"): (WORK, {LEASE}),
    ("POST", "/nodes/<node_id>/heartbeat"): (WORK, {LEASE}),
    ("PUT", "/nodes/<node_id>/logs"): (WORK, {LEASE}),
    ("POST", "/nodes/<node_id>/report"): (WORK, {LEASE}),
    ("GET", "/explain/<job_id>"): (READ, {USER}),
}
OPEN = {"/healthz", "/readyz", "/metrics", f"{API_PREFIX}/openapi/scheduler.json"}


def _routes(app: Flask) -> list[tuple[str, str, Any]]:
    found = []
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            found.append((method, rule.rule, app.view_functions[rule.endpoint]))
    return found


def _call(platform: Platform, method: str, path: str, token: str | None, body: Any = None) -> Any:
    headers = bearer(token) if token else {}
    return platform.client.open(API_PREFIX + path, method=method, json=body or {}, headers=headers)


@pytest.mark.req("REST-3", "AUTH-6")
def test_every_route_states_its_scope_and_kinds(platform: Platform) -> None:
    stated = {}
    for method, path, view in _routes(platform.app):
        if path not in OPEN:
            stated[method, path.removeprefix(API_PREFIX)] = (view.mingora_scope, set(view.mingora_kinds))
    assert stated == KINDS


@pytest.mark.req("REST-2", "REST-3", "AUTH-6")
@pytest.mark.parametrize(("method", "rule"), sorted(KINDS))
def test_tokens_of_the_wrong_kind_scope_or_account_change_nothing(platform: Platform, method: str, rule: str) -> None:
    scope, kinds = KINDS[method, rule]
    worker = platform.worker()
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    path = rule.replace("<node_id>", worker.id).replace("<job_id>", job)
    tokens = {USER: platform.user, NODE: worker.token, LEASE: worker.lease["token"]}
    eve = platform.seed.account("eve")
    stranger = platform.worker(9, account=eve)
    platform.seed.job(eve)
    stranger.claim(status=204)
    platform.place(eve)
    stranger.run()
    foreign = {USER: platform.seed.token(eve), NODE: stranger.token, LEASE: stranger.lease["token"]}
    before = platform.dump()
    assert _call(platform, method, path, None).status_code == 401
    assert _call(platform, method, path, "mgu_" + "x" * 43).status_code == 401
    for kind, token in tokens.items():
        if kind not in kinds:
            assert _call(platform, method, path, token).status_code == 401, kind
    if USER in kinds:
        narrow = platform.seed.token(platform.account, tuple(other for other in SCOPES if other != scope))
        before = platform.dump()
        answer = _call(platform, method, path, narrow)
        assert (answer.status_code, answer.get_json()["error"]["required"]) == (403, scope)
    if "<" in rule:
        for kind in kinds:
            answer = _call(platform, method, path, foreign[kind], _body(rule, worker))
            assert answer.status_code in (404, 409), (kind, answer.text)
    for bad in ("node_00000000", "x", "job_00000000", "node_%00", "..%2fnodes"):
        if "<" in rule:
            path = rule.replace("<node_id>", bad).replace("<job_id>", bad)
            assert _call(platform, method, path, tokens[min(kinds)], _body(rule, worker)).status_code in (404, 409)
    assert platform.dump() == before


def _body(rule: str, worker: Worker) -> dict[str, Any]:
    action = rule.rpartition("/")[2]
    bodies: dict[str, dict[str, Any]] = {
        "pause": {"paused": True},
        "claim": {"claimId": "claim-0123456789"},
        "ready": {**worker.named(), "inputsDigest": worker.lease["inputsDigest"]},
        "heartbeat": worker.named(),
        "report": {**worker.named(), "outcome": "failed", "logBytes": 0},
    }
    return bodies.get(action, {})


@pytest.mark.req("JOB-4", "AUTH-9")
def test_a_node_cant_speak_for_its_accounts_other_nodes(platform: Platform, worker: Worker) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    platform.seed.job(platform.account, spec=spec)
    other = platform.worker(2)
    platform.waiting(worker, other)
    for each in (worker, other):
        each.claim()
    before = platform.dump()
    for (method, rule), (_, kinds) in sorted(KINDS.items()):
        if "<node_id>" in rule and USER not in kinds:
            token = worker.token if NODE in kinds else worker.lease["token"]
            path = rule.replace("<node_id>", other.id)
            query = f"?leaseId={other.lease['leaseId']}&attempt=1&offset=0" if "logs" in rule else ""
            answer = _call(platform, method, path + query, token, _body(rule, other))
            assert answer.status_code in (404, 409), (rule, answer.text)
    assert platform.dump() == before


@pytest.mark.req("JOB-4")
@pytest.mark.parametrize("wrong", ["leaseId", "attempt", "node", "other_lease", "ended", "expired"])
@pytest.mark.parametrize("call", ["ready", "beat", "log", "report"])
def test_a_stale_lease_changes_nothing(platform: Platform, worker: Worker, call: str, wrong: str) -> None:
    spec = {"schemaVersion": 1, "name": "t", "command": ["x"], "resources": {"ranks": 2}}
    job = platform.seed.job(platform.account, spec=spec)
    other = platform.worker(2)
    platform.waiting(worker, other)
    for each in (worker, other):
        each.claim()
    for each in (worker, other):
        each.ready()
        each.beat(started=True)
    changed: dict[str, Any] = {}
    if wrong == "leaseId":
        changed = {"leaseId": "lease_0123456789"}
    elif wrong == "attempt":
        changed = {"attempt": 2}
    elif wrong == "node":
        worker.id = other.id
    elif wrong == "other_lease":
        changed = {"leaseId": other.lease["leaseId"]}
    elif wrong == "ended":
        platform.cancel(job)
        worker.report("cancelled")
    else:
        platform.clock.advance(60)
    before = platform.dump()
    answer = {
        "ready": lambda: worker.ready(**changed),
        "beat": lambda: worker.beat(started=True, usage={"cpuSeconds": 1}, **changed),
        "log": lambda: worker.log(0, b"x", **changed),
        "report": lambda: worker.report("failed", exitCode=1, **changed),
    }[call]()
    # After its end the token is dead; only a repeated report is known by it, and this one is another.
    expected = (401, 409) if wrong == "ended" else (409,)
    assert answer.status_code in expected
    assert answer.get_json()["error"]["code"] in ("lease_lost", "invalid_token")
    assert platform.dump() == before


WRONG_REPORTS: list[tuple[str, Any]] = [
    ("outcome", "done"), ("outcome", None), ("reason", {"code": "not_claimed", "message": "m"}),
    ("reason", {"code": "lease_lost", "message": "m"}), ("reason", "x"), ("reason", {"code": "signal"}),
    ("reason", {"code": [], "message": "m"}),
    ("exitCode", 2**40), ("signal", 0), ("logBytes", -1), ("logBytes", 2**40), ("results", {}),
    ("results", [{}]), ("usage", {"cpuSeconds": -1}), ("usage", {"cpuSeconds": 1e300}), ("usage", {"x": 1}),
    ("usage", {"cpuSeconds": True}), ("warnings", "x"), ("warnings", [1]), ("warnings", ["w"] * 20 + [[]]), ("more", 1),
]  # fmt: skip


@pytest.mark.req("REST-2")
def test_a_wrong_report_is_refused_by_name(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    before = platform.dump()
    for field, value in WRONG_REPORTS:
        answer = worker.report(**{"outcome": "failed", field: value})
        assert answer.status_code == 400, (field, value)
        assert answer.get_json()["error"]["field"].partition(".")[0] == field
    assert platform.dump() == before


GOOD = {"path": "a", "objectId": "obj_0123456789", "size": 1, "sha256": "a" * 64, "executable": False}


WRONG_RESULTS: list[list[dict[str, Any]]] = [
    [{**GOOD, "path": "../a"}], [{**GOOD, "path": "/a"}], [{**GOOD, "path": "a\x00"}], [{**GOOD, "path": "a\\b"}],
    [{**GOOD, "path": "\ud800"}], [{**GOOD, "path": ""}], [{**GOOD, "path": 1}], [{**GOOD, "more": 1}],
    [{**GOOD, "objectId": "job_0123456789"}], [{**GOOD, "size": -1}], [{**GOOD, "size": 1.0}],
    [{**GOOD, "sha256": "A" * 64}], [{**GOOD, "executable": 1}], [GOOD, GOOD], [GOOD, {**GOOD, "path": "A"}],
    [GOOD, {**GOOD, "path": "a/b"}], [GOOD, {**GOOD, "path": "b", "size": 2}],
    [{**GOOD, "path": f"f{index}"} for index in range(10_001)],
]  # fmt: skip


@pytest.mark.req("REST-2", "WORK-3")
def test_wrong_results_are_refused(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    for entries in WRONG_RESULTS:
        assert worker.report(results=entries).status_code == 400, entries[:2]
    assert platform.pins.held == {}


@pytest.mark.req("REST-2")
def test_registering_by_a_lease_token_is_refused(platform: Platform, worker: Worker) -> None:
    platform.seed.job(platform.account)
    platform.waiting(worker)
    worker.run()
    assert _call(platform, "POST", "/nodes", worker.lease["token"], node_record(5)).status_code == 401
    assert len(platform.all(sa.select(schema.nodes))) == 1
