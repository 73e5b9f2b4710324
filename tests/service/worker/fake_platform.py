"""A small platform that speaks real HTTP on 127.0.0.1: the routes of docs/protocol.md that a worker uses, strictly.

Tests steer it: `lose` drops answers after the work is done, `refuse` answers with an error, `ttl` shortens leases,
`slow_parts` makes uploads slow (seconds a part).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

API = "/api/research/v1"
NODE_FIELDS = {
    *("nodeKey", "name", "version", "platform", "machineId", "cpu", "memoryMiB", "gpu", "runtimes", "imageDigest"),
    *("fingerprint", "networkGroup", "allowClusterNetwork", "labels", "data", "isolation"),
}
REPORT_FIELDS = {
    *("leaseId", "attempt", "outcome", "reason", "exitCode", "signal", "logBytes", "results", "usage", "warnings"),
}
REASONS = {
    *("exit_code", "signal", "memory_exceeded", "timed_out", "command_not_found", "input_corrupt", "worker_error"),
    *("inputs_unavailable", "quota_exceeded", "result_refused", "worker_stopped", "disk_full", "lease_lost"),
    *("ready_deadline", "cancelled", "peer_failed", "output_limit", "log_limit", "engine_lost"),
}


class Refusal(Exception):
    def __init__(self, status: int, code: str, **fields: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.fields = status, code, fields


@dataclass
class Lease:
    id: str
    token: str
    claim_id: str
    job: Job
    attempt: int = 1
    expires: float = 0.0
    ready: bool = False
    started: bool = False
    stop: dict[str, Any] | None = None
    log: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    report: dict[str, Any] | None = None
    over: bool = False
    beats: list[float] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    isolation: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass
class Job:
    id: str
    spec: dict[str, Any]
    inputs: list[dict[str, Any]]
    leases: list[Lease] = field(default_factory=list)

    @property
    def lease(self) -> Lease:
        return self.leases[-1]


def digest_of(inputs: list[dict[str, Any]]) -> str:
    rows = sorted([e["path"], e["size"], e["sha256"], e["executable"]] for e in inputs)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


class FakePlatform:
    def __init__(self, *, ttl: float = 60.0, log_cap: int = 100 * 1024 * 1024, part_size: int = 2 << 20) -> None:
        self.ttl, self.log_cap, self.part_size = ttl, log_cap, part_size
        self.lock = threading.Condition()
        self.user_tokens = {"mgu_" + "u" * 43}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.node_tokens: dict[str, str] = {}
        self.queue: list[Job] = []
        self.jobs: list[Job] = []
        self.objects: dict[str, dict[str, Any]] = {}
        self.content: dict[str, bytes] = {}
        self.lose: Counter[str] = Counter()
        self.refuse: dict[str, list[Refusal]] = {}
        self.seen: list[tuple[str, Any]] = []
        self.pauses: list[dict[str, Any]] = []
        self.max_results = 1 << 30
        self.slow_parts = 0.0
        self._numbers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.05), daemon=True)
        self._thread.start()

    # -- for tests ---------------------------------------------------------------------------------------------

    @property
    def user_token(self) -> str:
        return next(iter(self.user_tokens))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def submit(
        self,
        command: list[str],
        files: dict[str, bytes] | None = None,
        *,
        executable: tuple[str, ...] = (),
        **spec: Any,
    ) -> Job:
        inputs = []
        for path, data in (files or {}).items():
            sha = hashlib.sha256(data).hexdigest()
            object_id = self._new("obj")
            self.objects[object_id] = self._object(object_id, len(data), sha, "input", complete=True)
            self.content[object_id] = data
            inputs.append(
                {
                    "path": path,
                    "objectId": object_id,
                    "size": len(data),
                    "sha256": sha,
                    "executable": path in executable,
                }
            )
        job = Job(self._new("job"), {"schemaVersion": 1, "name": "a test", "command": command, **spec}, inputs)
        with self.lock:
            self.jobs.append(job)
            self.queue.append(job)
            self.lock.notify_all()
        return job

    def cancel(self, job: Job, reason: str = "cancelled", grace: float = 1.0) -> None:
        with self.lock:
            job.lease.stop = {"reason": reason, "graceSeconds": grace}
            self.lock.notify_all()

    def end_lease(self, job: Job) -> None:
        with self.lock:
            job.lease.over = True
            self.lock.notify_all()

    def wait(self, what: Any, timeout: float = 20.0) -> None:
        """Waits until `what()` is true; a test fails otherwise."""
        until = time.monotonic() + timeout
        while not what():
            assert time.monotonic() < until, "the platform waited in vain"
            time.sleep(0.01)

    def report(self, job: Job, timeout: float = 20.0) -> dict[str, Any]:
        self.wait(lambda: job.leases and job.lease.report is not None, timeout)
        report = job.lease.report
        assert report is not None
        return report

    def results(self, job: Job) -> dict[str, bytes]:
        report = self.report(job)
        return {entry["path"]: self.content[entry["objectId"]] for entry in report["results"]}

    def count(self, action: str) -> int:
        return sum(1 for name, _body in self.seen if name == action)

    # -- routes ------------------------------------------------------------------------------------------------

    def nodes_post(self, token: str, body: dict[str, Any]) -> tuple[int, Any]:
        only(body, NODE_FIELDS, required=NODE_FIELDS - {"isolation"})
        check_profile(body.get("isolation"))
        assert len(body["nodeKey"]) >= 32
        with self.lock:
            known = next((n for n in self.nodes.values() if n["nodeKey"] == body["nodeKey"]), None)
            if token in self.user_tokens:
                new = "mgn_" + hashlib.sha256(self._new("x").encode()).hexdigest()
                node_id = known["id"] if known else self._new("node")
                self.node_tokens = {t: n for t, n in self.node_tokens.items() if n != node_id}
                self.node_tokens[new] = node_id
            elif known and self.node_tokens.get(token) == known["id"]:
                new, node_id = None, known["id"]
            else:
                raise Refusal(401, "invalid_token")
            self.nodes[node_id] = {**body, "id": node_id}
        answer = {"id": node_id, "name": body["name"], "token": new, "tokenId": "tok_1", "ttlSeconds": 2592000}
        return (200 if known else 201), answer

    def claim(self, token: str, node: str, body: dict[str, Any]) -> tuple[int, Any]:
        only(body, {"claimId", "wait"}, required={"claimId"})
        assert 16 <= len(body["claimId"]) <= 64
        self._node(token, node)
        until = time.monotonic() + min(15.0, body.get("wait", 0))
        with self.lock:
            live = [lease for job in self.jobs for lease in job.leases if self._live(lease)]
            for lease in live:
                if lease.claim_id != body["claimId"]:
                    raise Refusal(409, "node_busy")
                lease.token = self._new_token()
                return 200, self._grant(lease)
            while not self.queue:
                if not self.lock.wait(until - time.monotonic()) and time.monotonic() >= until:
                    return 204, None
            job = self.queue.pop(0)
            lease = Lease(self._new("lease"), self._new_token(), body["claimId"], job, expires=self._expiry())
            job.leases.append(lease)
            return 200, self._grant(lease)

    def _grant(self, lease: Lease) -> dict[str, Any]:
        job = lease.job
        return {
            "leaseId": lease.id,
            "attempt": lease.attempt,
            "attemptId": "att_1",
            "jobId": job.id,
            "rank": 0,
            "ranks": 1,
            "token": lease.token,
            "ttlSeconds": self.ttl,
            "readyWithinSeconds": 600,
            "logCapBytes": self.log_cap,
            "spec": job.spec,
            "inputs": job.inputs,
            "inputsDigest": digest_of(job.inputs),
        }

    def ready(self, token: str, node: str, body: dict[str, Any]) -> tuple[int, Any]:
        required = {"leaseId", "attempt", "inputsDigest"}
        only(body, {*required, "wait", "isolation", "warnings"}, required=required)
        check_profile(body.get("isolation"))
        assert all(isinstance(text, str) for text in body.get("warnings", []))
        with self.lock:
            lease = self._lease(token, body)
            assert body["inputsDigest"] == digest_of(lease.job.inputs)
            if not lease.ready:
                lease.isolation, lease.warnings = body.get("isolation"), body.get("warnings", [])
            lease.ready = True
            self.lock.notify_all()
            return 200, self._beat(lease)

    def heartbeat(self, token: str, node: str, body: dict[str, Any]) -> tuple[int, Any]:
        only(body, {"leaseId", "attempt", "usage", "wait", "started"}, required={"leaseId", "attempt"})
        until = time.monotonic() + min(15.0, body.get("wait", 0))
        with self.lock:
            lease = self._lease(token, body)
            lease.expires = self._expiry()
            lease.beats.append(time.monotonic())
            lease.started = lease.started or body.get("started", False)
            lease.usage = body.get("usage", lease.usage)
            while not (lease.stop or (lease.ready and not lease.started)) and time.monotonic() < until:
                self.lock.wait(until - time.monotonic())
                self._lease(token, body)
            return 200, self._beat(lease)

    def _beat(self, lease: Lease) -> dict[str, Any]:
        return {"ttlSeconds": self.ttl, "start": lease.ready, "stop": lease.stop}

    def report_post(self, token: str, node: str, body: dict[str, Any]) -> tuple[int, Any]:
        only(body, REPORT_FIELDS, required=REPORT_FIELDS)
        with self.lock:
            lease = self._lease(token, body, replay=True)
            if lease.report is not None:
                assert lease.report == body, "a report was changed"
                return 200, {"state": body["outcome"]}
            assert body["outcome"] in {"succeeded", "failed", "cancelled"}
            assert (body["reason"] is None) == (body["outcome"] == "succeeded")
            assert body["reason"] is None or body["reason"]["code"] in REASONS
            assert isinstance(body["reason"], dict | None)
            if body["logBytes"] != len(lease.log):
                raise Refusal(409, "log_incomplete", acked=len(lease.log))
            for entry in body["results"]:
                only(entry, {"path", "objectId", "size", "sha256", "executable"})
                assert self.objects[entry["objectId"]]["state"] == "complete"
            lease.report = body
            lease.over = True
            self.lock.notify_all()
            return 200, {"state": body["outcome"]}

    def pause(self, token: str, node: str, body: dict[str, Any]) -> tuple[int, Any]:
        only(body, {"paused", "reason"}, required={"paused", "reason"})
        self._node(token, node)
        self.pauses.append(body)
        return 204, None

    def logs(self, token: str, query: dict[str, str], data: bytes) -> tuple[int, Any]:
        only(query, {"leaseId", "attempt", "offset", "truncated"}, required={"leaseId", "attempt", "offset"})
        assert len(data) <= 1 << 20
        with self.lock:
            lease = self._lease(token, {"leaseId": query["leaseId"], "attempt": int(query["attempt"])})
            offset = int(query["offset"])
            if offset > len(lease.log):
                raise Refusal(409, "log_gap", acked=len(lease.log))
            lease.log += data[len(lease.log) - offset :]
            assert len(lease.log) <= self.log_cap
            lease.truncated = lease.truncated or query.get("truncated") == "1"
            return 200, {"acked": len(lease.log)}

    # -- objects -----------------------------------------------------------------------------------------------

    def objects_batch(self, token: str, body: dict[str, Any]) -> tuple[int, Any]:
        self._any_lease(token)
        return 200, {"objects": [self._open(item) for item in body["objects"]]}

    def _open(self, item: dict[str, Any]) -> dict[str, Any]:
        only(item, {"size", "sha256", "kind"})
        assert item["kind"] == "result"
        with self.lock:
            for found in self.objects.values():
                if (found["sha256"], found["size"]) == (item["sha256"], item["size"]):
                    return found
            used = sum(o["size"] for o in self.objects.values() if o["kind"] == "result")
            if used + item["size"] > self.max_results:
                error = {"code": "quota_exceeded", "message": "too much", "retryable": False}
                return {"error": {**error, "limit": "maxBytes", "allowed": self.max_results, "used": used}}
            new = self._object(self._new("obj"), item["size"], item["sha256"], "result", complete=False)
            self.objects[new["id"]] = new
            self.content[new["id"]] = b""
            return new

    def _object(self, object_id: str, size: int, sha: str, kind: str, *, complete: bool) -> dict[str, Any]:
        parts = -(-size // self.part_size)
        return {
            "id": object_id,
            "kind": kind,
            "size": size,
            "sha256": sha,
            "state": "complete" if complete else "open",
            "partSize": self.part_size,
            "parts": parts,
            "present": list(range(parts)) if complete else [],
            "createdAt": "2026-01-31T10:00:00.000Z",
            "completedAt": None,
            "pinned": False,
        }

    def part(self, token: str, object_id: str, index: int, query: dict[str, str], data: bytes, sha: str) -> Any:
        self._any_lease(token)
        time.sleep(self.slow_parts)
        if hashlib.sha256(data).hexdigest() != sha:
            raise Refusal(422, "digest_mismatch")
        with self.lock:
            found = self.objects[object_id]
            whole = bytearray(self.content[object_id].ljust(found["size"], b"\0"))
            whole[index * self.part_size : index * self.part_size + len(data)] = data
            self.content[object_id] = bytes(whole)
            found["present"] = sorted({*found["present"], index})
        if query.get("complete") == "1" and len(found["present"]) == found["parts"]:
            self.complete(token, object_id)
        return 200, {"index": index, "size": len(data), "sha256": sha, "state": found["state"]}

    def complete(self, token: str, object_id: str) -> tuple[int, Any]:
        self._any_lease(token)
        found = self.objects[object_id]
        if hashlib.sha256(self.content[object_id]).hexdigest() != found["sha256"]:
            raise Refusal(422, "digest_mismatch")
        found["state"] = "complete"
        return 200, found

    def object_content(self, token: str, object_id: str) -> bytes:
        lease = self._any_lease(token)
        if object_id not in {entry["objectId"] for entry in lease.job.inputs}:
            raise Refusal(404, "not_found")
        return self.content[object_id]

    # -- checks ------------------------------------------------------------------------------------------------

    def _node(self, token: str, node: str) -> None:
        if self.node_tokens.get(token) != node:
            raise Refusal(401, "invalid_token")

    def _live(self, lease: Lease) -> bool:
        return not lease.over and time.monotonic() < lease.expires

    def _any_lease(self, token: str) -> Lease:
        for job in self.jobs:
            for lease in job.leases:
                if lease.token == token and self._live(lease):
                    return lease
        raise Refusal(401, "invalid_token")

    def _lease(self, token: str, body: dict[str, Any], *, replay: bool = False) -> Lease:
        for job in self.jobs:
            for lease in job.leases:
                if lease.token == token and (self._live(lease) or (replay and lease.report is not None)):
                    if (lease.id, lease.attempt) != (body["leaseId"], body["attempt"]):
                        raise Refusal(409, "lease_lost")
                    return lease
        raise Refusal(401, "invalid_token")

    def _expiry(self) -> float:
        return time.monotonic() + self.ttl

    def _new(self, prefix: str) -> str:
        with self.lock:
            self._numbers += 1
            return f"{prefix}_{self._numbers:08d}"

    def _new_token(self) -> str:
        return "mgl_" + hashlib.sha256(self._new("x").encode()).hexdigest()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        platform = self

        class Handler(_Handler):
            fake = platform

        return Handler


def only(body: Any, allowed: set[str], required: set[str] | None = None) -> None:
    """Refuses unknown and missing fields."""
    for name in body:
        if name not in allowed:
            raise Refusal(400, "invalid_request", field=name)
    for name in required or ():
        if name not in body:
            raise Refusal(400, "invalid_request", field=name)


def check_profile(profile: Any) -> None:
    """Refuses what isn't a profile of isolation."""
    for name, value in (profile or {}).items():
        if not re.fullmatch("[A-Za-z][A-Za-z0-9]{0,39}", name) or len(profile) > 40:
            raise Refusal(400, "invalid_request", field="isolation")
        if not isinstance(value, str | bool | int | float | None) or len(str(value)) > 200:
            raise Refusal(400, "invalid_request", field=f"isolation.{name}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakePlatform

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        assert parts.path.startswith(API + "/")
        steps = parts.path[len(API) + 1 :].split("/")
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        data = self._body()
        action = steps[2] if len(steps) > 2 else steps[0]
        try:
            refusals = self.fake.refuse.get(action, [])
            if refusals:
                raise refusals.pop(0)
            status, answer = self._route(steps, query, data)
        except Refusal as refusal:
            error = {"code": refusal.code, "message": refusal.code, "retryable": False, **refusal.fields}
            status, answer = refusal.status, {"error": error}
        if self.fake.lose[action] > 0:
            self.fake.lose[action] -= 1
            self.close_connection = True
            return
        raw = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in self._headers(status, answer, raw):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

    def _headers(self, status: int, answer: Any, raw: bytes) -> Iterator[tuple[str, str]]:
        if status != 204:
            yield "Content-Length", str(len(raw))
        if isinstance(answer, bytes):
            yield "ETag", f'"{hashlib.sha256(raw).hexdigest()}"'
            yield "X-Content-SHA256", hashlib.sha256(raw).hexdigest()
        if status == 429:
            yield "Retry-After", "1"

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length")
        if self.command in {"POST", "PUT"}:
            assert length is not None, "411"
        return self.rfile.read(int(length or 0))

    def _route(self, steps: list[str], query: dict[str, str], data: bytes) -> tuple[int, Any]:
        fake = self.fake
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        body = json.loads(data) if data and self.headers.get("Content-Type") == "application/json" else {}
        fake.seen.append((steps[2] if len(steps) > 2 else steps[0], body))
        match [self.command, *steps]:
            case ["GET", "account"]:
                if token not in fake.user_tokens:
                    raise Refusal(401, "invalid_token")
                return 200, {"id": "acc_1", "name": "ada", "tenant": "default"}
            case ["POST", "nodes"]:
                return fake.nodes_post(token, body)
            case ["POST", "nodes", node, ("claim" | "ready" | "heartbeat" | "pause") as name]:
                return getattr(fake, name)(token, node, body)  # type: ignore[no-any-return]
            case ["POST", "nodes", node, "report"]:
                return fake.report_post(token, node, body)
            case ["PUT", "nodes", _node, "logs"]:
                return fake.logs(token, query, data)
            case ["POST", "objects", "batch"]:
                return fake.objects_batch(token, body)
            case ["PUT", "objects", object_id, "parts", index]:
                sha = self.headers["X-Content-SHA256"]
                return fake.part(token, object_id, int(index), query, data, sha)  # type: ignore[no-any-return]
            case ["POST", "objects", object_id, "complete"]:
                return fake.complete(token, object_id)
            case ["GET", "objects", object_id, "content"]:
                return 200, fake.object_content(token, object_id)
        raise Refusal(404, "not_found")

    do_GET = do_POST = do_PUT = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass
