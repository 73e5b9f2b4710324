"""Every route of every service against input that nobody should send: refused, never a fault of ours, nothing changed.

The cases are made from the route tables: each parameter of the path, of the query, each header and each member of a
body is replaced, one at a time, by each value of a corpus.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher
from flask import Flask
from scheduler_platform import Platform, Worker, make_platform, node_record
from support import RecordedHints, RecordedPins, Seed, bearer
from werkzeug.test import Client, TestResponse

import mingora_api.app
import mingora_blobstore.app
from mingora_api.config import Config as ApiConfig
from mingora_api.domain.passwords import Passwords
from mingora_blobstore.config import Config as BlobstoreConfig
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts, events, jobs, leases, nodes, work_tokens
from mingora_common.errors import CATALOGUE
from mingora_common.http import API_PREFIX
from mingora_common.ids import new_id
from mingora_common.wake import Waiters
from mingora_stack.router import Router

KEY = "k" * 32
# These words stand for what Python's json can't write; they are put into the text of the body.
ENDLESS, HUGE, DEEP = "@endless@", "@huge@", "@deep@"
RAW = {ENDLESS: "1e400", HUGE: "9" * 401, DEEP: "[" * 900 + "]" * 900}

VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 1.0, 2**31, 2**53 + 1, 2**63, 2**64, ENDLESS, HUGE, DEEP,
    "", " ", "x", "\x00", "a\x00b", "\ud800", "a\udcff", "\u202e", "e\u0301", "x" * 10_000, "é" * 300, "../..", "%00",
    "';--", "1", "\n", [], [[]], [None], [ENDLESS], ["\x00"], ["\ud800"], ["x"] * 2000, {}, {"a": {}}, {"\ud800": 1},
    {"\x00": "\x00"}, {"__proto__": ENDLESS}, [{}], [[DEEP]],
]  # fmt: skip
TEXTS = [b"", b" ", b"x", b"%00", b"%FF", b"%ED%A0%80", b"-1", b"1e3", b"1.5", b"nan", b"inf", b"9" * 400,
         b"2147483648", b"9223372036854775808", b"%D9%A1", b"%C2%B2", b"..%2f..", b"%2e%2e", b"a%0D%0Ab", b"x" * 4000,
         b"%F0%9F%98%80", b"true", b";", b"*", b"%27--", b"1&1"]  # fmt: skip
HEADERS = ["Authorization", "Idempotency-Key", "X-Request-Id", "Range", "If-Range", "If-None-Match", "Content-Type",
           "X-Content-SHA256", "X-Internal-Key", "X-Http-Method-Override", "X-Forwarded-Prefix"]  # fmt: skip
HEADER_VALUES = ["", "\xff", "x" * 8000, "bytes=" + "0-1," * 2000, "bytes=-" + "9" * 400, '"', "Bearer \xff", "GET"]
BODIES = [b"", b"{", b"null", b"1", b'"x"', b"[]", b"[{}]", b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"a":1,"a":1}',
          b"{}" + b" " * 9999, b"[" * 100_000, b'{"a":' * 50_000, b'{"wait":1e400}', b'{"wait":' + b"9" * 5000 + b"}",
          b"\x00" * 100]  # fmt: skip
CODES = {kind.code: kind.status for kind in CATALOGUE}
FILE = {"path": "a", "objectId": "obj_0123456789", "size": 1, "sha256": "a" * 64, "executable": False}
SPEC = {
    "schemaVersion": 1, "name": "n", "command": ["x"], "env": {"A": "b"}, "data": ["D"], "runtime": "native",
    "resources": {"ranks": 1, "cpu": 1, "memoryMiB": 16, "gpu": 0, "networkGroup": "g"}, "timeoutSeconds": 1,
    "environment": {"imageDigest": "sha256:" + "a" * 64, "fingerprint": "sha256:" + "a" * 64}, "priority": 1,
    "model": {"version": "1", "format": "f", "license": "l"}, "rendezvous": {"host": "h", "port": 1},
    "training": {"steps": 1, "seed": 1, "learningRate": 0.1, "batchSize": 1}, "resumeFrom": "job_0123456789",
    "retry": {"max": 1, "onExitCodes": [1], "onLogPatterns": ["x"]},
}  # fmt: skip
USAGE = {"cpuSeconds": 1, "memoryMiB": 1, "maxMemoryMiB": 1}
PROFILE = {"network": "none", "pids": 512, "share": 0.5, "seccomp": True, "apparmor": None}


@dataclass
class Target:
    """All services behind the stack's router, with somebody at work in them."""

    scheduler: Platform
    apps: dict[str, Flask]
    client: Client
    node: Worker = field(init=False)
    object_id: str = field(init=False)
    job_id: str = field(init=False)
    _made: int = 1

    def __post_init__(self) -> None:
        self.node = self.scheduler.worker()
        size = {"size": 3, "sha256": "a" * 64, "kind": "input"}
        answer = self.ask("POST", f"{API_PREFIX}/objects", bearer(self.scheduler.user), json.dumps(size).encode())
        self.object_id = str((answer.get_json() or {})["id"])
        self.holder()

    def holder(self) -> Worker:
        """A node at work, another one than before when that one's lease has ended."""
        if not self.node.lease or self.node.beat().status_code != 200:
            self._made += 1
            with self.scheduler.seed.engine.begin() as connection:
                for table in (leases, attempts, events, work_tokens, nodes, jobs):
                    connection.execute(sa.delete(table))
            self.node = self.scheduler.worker(self._made)
            self.job_id = self.scheduler.seed.job(self.scheduler.account, f"key-{self._made}")
            self.scheduler.waiting(self.node)
            self.node.run()
        return self.node

    def state(self) -> dict[str, list[Any]]:
        """All rows, but for those of who came and went."""
        return {name: rows for name, rows in self.scheduler.dump().items() if name not in ("audit", "tokens")}

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b"", query: bytes = b""
    ) -> TestResponse:
        given = {"CONTENT_LENGTH": str(len(body)), "QUERY_STRING": query.decode("latin-1")}
        return self.client.open(path, method=method, headers=headers, data=body, environ_overrides=given)


@pytest.fixture
def target(database_url: str, seed: Seed, clock: Clock, tmp_path: Path) -> Iterator[Target]:
    waiters, hints, pins = Waiters(0), RecordedHints(), RecordedPins()  # nobody can wait
    scheduler = make_platform(database_url, seed, clock, hints, waiters)
    databases = [Database(database_url, role) for role in ("api", "blobstore")]
    content = SqliteContent(str(tmp_path / "content.sqlite"))
    api = mingora_api.app.create_app(
        ApiConfig(database_url, "unix:///nonexistent", KEY, "http://127.0.0.1:1"), database=databases[0], clock=clock,
        hints=hints, pins=pins, waker=scheduler.waker, waiters=waiters,
        passwords=Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)),
    )  # fmt: skip
    blobstore = mingora_blobstore.app.create_app(
        BlobstoreConfig(database_url=database_url, content_file=str(tmp_path / "content.sqlite"), internal_key=KEY),
        database=databases[1], content=content, clock=clock,
    )  # fmt: skip
    apps = {"api": api, "blobstore": blobstore, "scheduler": scheduler.app}
    yield Target(scheduler, apps, Client(Router(apps)))
    content.close()
    for database in (*databases, scheduler.database):
        database.close()


@dataclass(frozen=True)
class Call:
    """A well-formed call of one route, to be spoiled."""

    method: str
    rule: str
    token: str
    body: Any = None
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


def calls(target: Target, service: str) -> Iterator[Callable[[], Call]]:
    """One for each route and method of a service's own table; each is made anew when the one before took effect."""
    for rule in target.apps[service].url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield functools.partial(_call, target, method, rule.rule)


def _call(target: Target, method: str, rule: str) -> Call:
    node, name = target.holder(), (method, rule.removeprefix(API_PREFIX))
    claimer = target.scheduler.worker(9999) if name[1].endswith(("claim", "pause")) else node
    token = target.scheduler.user
    if name[1].endswith(("claim", "pause")):
        token = claimer.token
    elif name[1].startswith("/nodes/") and method != "DELETE":
        token = node.lease["token"]
    ids = {"node_id": claimer.id, "job_id": target.job_id, "object_id": target.object_id, "token_id": "tok_0123456789",
           "index": "0", "owner": "job_0123456789"}  # fmt: skip
    if name == ("DELETE", "/nodes/<node_id>"):
        ids["node_id"] = "node_0123456789"
    if name == ("DELETE", "/objects/<object_id>"):
        ids["object_id"] = "obj_0123456789"
    headers = {"Idempotency-Key": new_id("key"), "X-Content-SHA256": "a" * 64, "X-Internal-Key": KEY}
    return Call(method, rule, token, _body(target, name), _query(node, name[1]), headers, ids)


def _body(target: Target, name: tuple[str, str]) -> Any:
    named, upload = target.node.named(), {"size": 3, "sha256": "b" * 64, "kind": "input"}
    bodies: dict[tuple[str, str], Any] = {
        ("POST", "/tokens"): {"identifier": "ali", "password": "p" * 8, "name": "m"},
        ("POST", "/jobs"): {"spec": SPEC, "inputs": [FILE]},
        ("POST", "/jobs/<job_id>/cancel"): {},
        ("POST", "/objects"): upload,
        ("POST", "/objects/batch"): {"objects": [upload]},
        ("POST", "/objects/<object_id>/complete"): {},
        ("POST", "/internal/pins"): {"owner": "job_0123456789", "accountId": target.scheduler.account,
                                     "objects": [{"id": "obj_0123456789", "sha256": "a" * 64, "size": 1}]},
        ("POST", "/nodes"): node_record(77, gpu={"index": 0, "uuid": "u", "name": "g", "memoryMiB": 1},
                                        labels={"k": "v"}, data=["D"], networkGroup="g", isolation=PROFILE,
                                        imageDigest="sha256:" + "a" * 64, fingerprint="sha256:" + "a" * 64),
        ("POST", "/nodes/<node_id>/pause"): {"paused": True, "reason": "r"},
        ("POST", "/nodes/<node_id>/claim"): {"claimId": "claim-0123456789", "wait": 0},
        ("POST", "/nodes/<node_id>/ready"): {**named, "inputsDigest": target.node.lease["inputsDigest"], "wait": 0,
                                           "isolation": PROFILE, "warnings": ["w"]},
        ("POST", "/nodes/<node_id>/heartbeat"): {**named, "usage": USAGE, "wait": 0, "started": True},
        ("POST", "/nodes/<node_id>/report"): {
            **named, "outcome": "failed", "reason": {"code": "exit_code", "message": "m"}, "exitCode": 1,
            "signal": None, "logBytes": 0, "results": [FILE], "usage": USAGE, "warnings": ["w"] * 21,
        },
    }  # fmt: skip
    return bodies.get(name)


def _query(node: Worker, rule: str) -> dict[str, str]:
    named = {key: str(value) for key, value in node.named().items()}
    queries: dict[str, dict[str, str]] = {
        "/jobs": {"limit": "1", "before": "x", "state": "queued", "key": "k"},
        "/jobs/<job_id>": {"wait": "0", "knownState": "queued"},
        "/jobs/<job_id>/events": {"after": "0", "limit": "1", "wait": "0"},
        "/jobs/<job_id>/logs": {"attempt": "1", "rank": "0", "offset": "0", "limit": "1", "wait": "0", "tail": "1"},
        "/objects": {"limit": "1", "after": "1.obj_0123456789", "sha256": "a" * 64},
        "/objects/<object_id>/parts/<index>": {"complete": "1"},
        "/nodes/<node_id>/logs": {**named, "offset": "0", "truncated": "0"},
    }
    return queries.get(rule, {})


Sent = tuple[str, bytes, bytes, dict[str, str]]


def spoiled(call: Call) -> Iterator[tuple[str, Callable[[Call], Sent]]]:
    """Every way to spoil a call: what is done to it, and what then is sent (path, query, body, headers)."""
    for name, text in itertools.product(re.findall(r"<(\w+)>", call.rule), TEXTS):
        yield f"{name}={text[:40]!r}", functools.partial(_sent, ids={name: text.decode()})
    for name, text in itertools.product(call.query, TEXTS):
        yield f"?{name}={text[:40]!r}", functools.partial(_sent, query={name: text})
    for name, value in itertools.product(HEADERS, HEADER_VALUES):
        yield f"{name}: {value[:40]!r}", functools.partial(_sent, headers={name: value})
    for raw in BODIES if call.method != "GET" else ():
        yield f"body {raw[:40]!r}", functools.partial(_sent, body=raw)
    for place, value in itertools.product(_places(call.body), VALUES):
        yield f"{place} = {str(value)[:40]!r}", functools.partial(_sent_with, place=place, value=value)


def _sent(
    call: Call, *, ids: Mapping[str, str] = {}, query: Mapping[str, bytes] = {}, headers: Mapping[str, str] = {},
    body: bytes | None = None,
) -> Sent:  # fmt: skip
    path = re.sub(r"<(\w+)>", lambda found: ids.get(found[1], call.ids[found[1]]), call.rule)
    pairs = {**{name: value.encode() for name, value in call.query.items()}, **query}
    if body is None:
        body = b"" if call.body is None else json.dumps(call.body).encode()
    text = b"&".join(name.encode() + b"=" + value for name, value in pairs.items())
    return path, text, body, {**call.headers, **bearer(call.token), **headers}


def _sent_with(call: Call, *, place: Sequence[Any], value: Any) -> Sent:
    return _sent(call, body=_replaced(call.body, place, value))


def _places(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each member of a body, the last of a list standing for all of it."""
    pairs = body.items() if isinstance(body, dict) else [(len(body) - 1, body[-1])] if isinstance(body, list) else ()
    for key, value in pairs:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _replaced(body: Any, place: Sequence[Any], value: Any) -> bytes:
    changed = copy.deepcopy(body)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    text = json.dumps(changed)
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text.encode()


def check(answer: TestResponse, what: str) -> bool:
    """Whether the call took effect; fails unless it did or was refused as the catalogue says."""
    if answer.status_code < 400:
        return answer.status_code < 300
    error = (answer.get_json(silent=True) or {}).get("error", {})
    assert CODES.get(error.get("code")) == answer.status_code, f"{what}: {answer.status} {answer.text[:300]}"
    assert answer.status_code < 500, f"{what}: {answer.status} {answer.text[:300]}"
    assert answer.headers["X-Request-Id"], what
    return False


@pytest.mark.req("REST-2", "REST-3")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("service", ["api", "blobstore", "scheduler"])
def test_nothing_that_is_sent_is_a_fault_of_ours(target: Target, service: str) -> None:
    for make in calls(target, service):
        call = make()
        before = target.state()
        for what, spoil in spoiled(call):
            path, query, body, headers = spoil(call)
            answer = target.ask(call.method, path, headers, body, query)
            if check(answer, f"{call.method} {call.rule} {what}") and call.method != "GET":
                call = make()
                before = target.state()
        assert target.state() == before, call.rule
