"""A platform in memory that speaks real HTTP on loopback and can be told to fail: what the client tests stand on.

It follows docs/protocol.md where the client can see it. Tests of the real services are elsewhere; this one exists for
what a healthy platform doesn't do: cut connections, lose answers, refuse, be slow.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

API = "/api/research/v1"
SCHEMA = Path(__file__).parents[3] / "services/api/mingora_api/domain/job.schema.json"
TOKEN = "mgu_" + "t" * 43
NOW = "2026-01-31T10:00:00.000Z"


@dataclass
class Fault:
    """Strikes the next request that matches: `cut` before it is handled, `lose` its answer after, `half` of its body
    sent, or a whole `status` answer instead."""

    method: str
    path: str
    kind: str
    status: int = 0
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int


class Refusal(Exception):
    def __init__(self, status: int, code: str, **fields: Any) -> None:
        super().__init__(code)
        self.status = status
        self.error = {"code": code, "message": f"refused: {code}", "retryable": False, **fields}


class FakePlatform:
    def __init__(self, *, part_size: int = 8) -> None:
        self.part_size = part_size
        self.limits = {"maxFileBytes": 4096, "maxBytes": 16384, "maxFiles": 1000, "maxInputs": 1000}
        self.intervals: dict[str, float] = {"jobPollSeconds": 0.02, "maxWaitSeconds": 0.3}
        self.objects: dict[str, dict[str, Any]] = {}
        self.content: dict[str, dict[int, bytes]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.nodes: list[dict[str, Any]] = []
        self.logs: dict[tuple[str, int, int], bytes] = {}
        self.log_done: set[tuple[str, int, int]] = set()
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.tokens: dict[str, dict[str, Any]] = {"tok_1234": self.token_row("tok_1234", current=True)}
        self.faults: deque[Fault] = deque()
        self.seen: list[Seen] = []
        self.changed = threading.Condition()
        self.before: Callable[[Seen], None] = lambda _seen: None
        handler = type("BoundHandler", (Handler,), {"platform": self})
        self.server = QuietServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> FakePlatform:
        self.thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def fail(self, method: str, path: str, kind: str, status: int = 0, times: int = 1, **error: Any) -> None:
        headers = error.pop("headers", {})
        body = {"error": {"code": "unavailable", "message": "down", "retryable": True, **error}} if status else {}
        self.faults.extend(Fault(method, path, kind, status, body, headers) for _n in range(times))

    def asked(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in list(self.seen) if seen.method == method and re.fullmatch(path, seen.path)]

    def update_job(self, job_id: str, **fields: Any) -> None:
        with self.changed:
            self.jobs[job_id].update(fields)
            self.changed.notify_all()

    def write_log(self, job_id: str, data: bytes, *, attempt: int = 1, rank: int = 0, done: bool = False) -> None:
        with self.changed:
            name = (job_id, attempt, rank)
            self.logs[name] = self.logs.get(name, b"") + data
            if done:
                self.log_done.add(name)
            self.changed.notify_all()

    def add_job(self, job_id: str = "job_00000001", **fields: Any) -> dict[str, Any]:
        job: dict[str, Any] = {
            "id": job_id, "name": "n", "key": job_id, "state": "queued", "reason": None, "cancelRequested": False,
            "priority": 0, "attempt": None, "createdAt": NOW, "startedAt": None, "finishedAt": None, "exitCode": None,
            "ranks": [], "usage": None, "spec": {}, "inputs": [], "results": [], **fields,
        }  # fmt: skip
        self.jobs[job_id] = job
        return job

    def add_node(self, node_id: str = "node_00000001", **fields: Any) -> dict[str, Any]:
        node: dict[str, Any] = {
            "id": node_id, "name": "lab", "state": "idle", "pauseReason": None, "platform": "linux-x86_64", "cpu": 8,
            "memoryMiB": 16384, "gpu": None, "runtimes": ["native"], "networkGroup": None,
            "allowClusterNetwork": False, "labels": {}, "data": [], "fingerprint": None, "imageDigest": None,
            "isolation": None, "registeredAt": NOW, "lastSeenAt": NOW, "lease": None, **fields,
        }  # fmt: skip
        self.nodes.append(node)
        return node

    def add_object(self, data: bytes) -> dict[str, Any]:
        """A complete object with this content."""
        item = self.open_object({"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "kind": "result"})
        parts = self.content[item["id"]]
        for index in range(item["parts"]):
            parts[index] = data[index * self.part_size : (index + 1) * self.part_size]
        item.update(state="complete", present=list(range(item["parts"])))
        return item

    def result(self, path: str, data: bytes, *, rank: int = 0, executable: bool = False) -> dict[str, Any]:
        item = self.add_object(data)
        return {
            "path": path, "objectId": item["id"], "size": len(data), "sha256": item["sha256"],
            "executable": executable, "rank": rank,
        }  # fmt: skip

    @staticmethod
    def token_row(token_id: str, *, current: bool) -> dict[str, Any]:
        return {
            "id": token_id, "kind": "user", "name": "laptop", "scopes": ["research:read"], "createdAt": NOW,
            "lastUsedAt": None, "expiresAt": "2036-01-31T10:00:00.000Z", "current": current,
        }  # fmt: skip

    # -- routes -------------------------------------------------------------------------------------------------

    def answer(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        route = f"{seen.method} {seen.path}"
        for pattern, handle in ROUTES:
            found = re.fullmatch(pattern, route)
            if found:
                if route != "POST /tokens" and seen.headers.get("authorization") != f"Bearer {TOKEN}":
                    raise Refusal(401, "invalid_token")
                result = handle(self, seen, *found.groups())
                return result if len(result) == 3 else (*result, {})
        raise Refusal(404, "not_found")

    def login(self, seen: Seen) -> Any:
        body = json.loads(seen.body)
        if body["password"] != "correct horse":
            raise Refusal(401, "bad_credentials")
        account = {"id": "acc_1", "name": body["identifier"], "tenant": "default"}
        row = self.tokens["tok_1234"]
        return 201, {**row, "token": TOKEN, "ttlSeconds": 86400, "account": account}

    def list_tokens(self, _seen: Seen) -> Any:
        return 200, {"tokens": list(self.tokens.values())}

    def revoke(self, _seen: Seen, token_id: str) -> Any:
        if self.tokens.pop(token_id, None) is None:
            raise Refusal(404, "not_found")
        return 204, None

    def account(self, _seen: Seen) -> Any:
        return 200, {
            "id": "acc_1",
            "name": "ada",
            "tenant": "default",
            "token": self.token_row("tok_1234", current=True),
        }

    def policy(self, _seen: Seen) -> Any:
        schema = json.loads(SCHEMA.read_text())
        return 200, {
            "apiVersion": 1, "server": "fake", "limits": self.limits, "partSizeBytes": self.part_size,
            "intervals": self.intervals, "jobSchema": schema,
        }  # fmt: skip

    def open_object(self, wanted: dict[str, Any]) -> dict[str, Any]:
        for item in self.objects.values():
            if (item["sha256"], item["size"]) == (wanted["sha256"], wanted["size"]) and item["state"] != "corrupt":
                return item
        object_id = f"obj_{len(self.objects):08d}"
        parts = -(-wanted["size"] // self.part_size)
        item = {**wanted, "id": object_id, "state": "open", "partSize": self.part_size, "parts": parts, "present": []}
        self.objects[object_id], self.content[object_id] = item, {}
        return item

    def batch(self, seen: Seen) -> Any:
        return 200, {"objects": [self.open_object(wanted) for wanted in json.loads(seen.body)["objects"]]}

    def list_objects(self, _seen: Seen) -> Any:
        return 200, {"objects": [], "next": None, "usage": {"bytes": 0, "files": 0, "maxBytes": 100, "maxFiles": 10}}

    def put_part(self, seen: Seen, object_id: str, number: str) -> Any:
        item, index = self.objects[object_id], int(number)
        if hashlib.sha256(seen.body).hexdigest() != seen.headers["x-content-sha256"]:
            raise Refusal(422, "digest_mismatch")
        if item["state"] != "open":
            raise Refusal(409, "object_frozen")
        if self.content[object_id].setdefault(index, seen.body) != seen.body:
            raise Refusal(409, "part_conflict")
        item["present"] = sorted(self.content[object_id])
        if seen.query.get("complete") == "1" and len(item["present"]) == item["parts"]:
            self.finish(item)
        digest = hashlib.sha256(seen.body).hexdigest()
        return 200, {"index": index, "size": len(seen.body), "sha256": digest, "state": item["state"]}

    def complete(self, _seen: Seen, object_id: str) -> Any:
        item = self.objects[object_id]
        if len(item["present"]) != item["parts"]:
            raise Refusal(409, "object_incomplete")
        self.finish(item)
        return 200, item

    def finish(self, item: dict[str, Any]) -> None:
        good = hashlib.sha256(self.bytes_of(item)).hexdigest() == item["sha256"]
        item["state"] = "complete" if good else "corrupt"
        if not good:
            raise Refusal(422, "digest_mismatch")

    def bytes_of(self, item: dict[str, Any]) -> bytes:
        return b"".join(data for _index, data in sorted(self.content[item["id"]].items()))

    def delete_object(self, _seen: Seen, object_id: str) -> Any:
        del self.objects[object_id]
        return 204, None

    def read_object(self, seen: Seen, object_id: str) -> Any:
        data = self.bytes_of(self.objects[object_id])
        wanted = re.fullmatch(r"bytes=(\d+)-", seen.headers.get("range", ""))
        if wanted is None:
            return 200, data
        start = int(wanted[1])
        if start >= len(data):
            raise Refusal(416, "range_not_satisfiable")
        return 206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}

    def create_job(self, seen: Seen) -> Any:
        body, key = json.loads(seen.body), seen.headers["idempotency-key"]
        missing = [entry["objectId"] for entry in body["inputs"] if entry["objectId"] not in self.objects]
        if missing:
            raise Refusal(409, "input_missing", objectIds=missing)
        for job in self.jobs.values():
            if job["key"] == key:
                if (job["spec"], job["inputs"]) != (body["spec"], body["inputs"]):
                    raise Refusal(409, "key_conflict", jobId=job["id"])
                return 200, job
        job_id = f"job_{len(self.jobs):08d}"
        return 201, self.add_job(job_id, key=key, name=body["spec"]["name"], spec=body["spec"], inputs=body["inputs"])

    def list_jobs(self, seen: Seen) -> Any:
        key = seen.query.get("key")
        return 200, {"jobs": [job for job in self.jobs.values() if key in (None, job["key"])], "next": None}

    def job_of(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.jobs:
            raise Refusal(404, "not_found")
        return self.jobs[job_id]

    def show_job(self, seen: Seen, job_id: str) -> Any:
        job = self.job_of(job_id)
        if "knownState" in seen.query:
            with self.changed:
                self.changed.wait_for(lambda: job["state"] != seen.query["knownState"], float(seen.query["wait"]))
        return 200, job

    def cancel_job(self, _seen: Seen, job_id: str) -> Any:
        self.job_of(job_id)["cancelRequested"] = True
        return 202, self.jobs[job_id]

    def delete_job(self, _seen: Seen, job_id: str) -> Any:
        if self.job_of(job_id)["state"] not in {"succeeded", "failed", "cancelled"}:
            raise Refusal(409, "job_not_finished")
        del self.jobs[job_id]
        return 204, None

    def read_log(self, seen: Seen, job_id: str) -> Any:
        job = self.job_of(job_id)
        query, rank = seen.query, int(seen.query.get("rank", 0))
        attempt = int(query.get("attempt") or job["attempt"] or 0)
        name = (job_id, attempt, rank)
        offset = int(query.get("offset", 0))
        ready = lambda: len(self.logs.get(name, b"")) > offset or name in self.log_done  # noqa: E731
        with self.changed:
            self.changed.wait_for(ready, float(query.get("wait", 0)))
            data, done = self.logs.get(name, b""), name in self.log_done
        if "tail" in query:
            offset = max(0, len(data) - int(query["tail"]))
        part = data[offset : offset + int(query["limit"])]
        done = (done or (attempt == 0 and job["state"] in {"cancelled"})) and offset + len(part) == len(data)
        return 200, part, {
            "X-Log-Attempt": str(attempt), "X-Log-Offset": str(offset), "X-Log-Next-Offset": str(offset + len(part)),
            "X-Log-Size": str(len(data)), "X-Log-Complete": str(done).lower(), "X-Log-Truncated": "false",
        }  # fmt: skip

    def read_events(self, seen: Seen, job_id: str) -> Any:
        after = int(seen.query["after"])
        events = [event for event in self.events.get(job_id, []) if event["seq"] > after]
        last = self.events[job_id][-1]["seq"] if self.events.get(job_id) else 0
        return 200, {"events": events, "last": last, "final": self.job_of(job_id)["state"] == "succeeded"}

    def explain(self, _seen: Seen, job_id: str) -> Any:
        self.job_of(job_id)
        problems = [{"code": "gpu", "message": "has no GPU"}]
        nodes = [{"nodeId": "node_1", "name": "lab", "problems": problems}]
        return 200, {"jobId": job_id, "state": "queued", "waiting": True, "summary": "No machine fits.", "nodes": nodes}

    def list_nodes(self, _seen: Seen) -> Any:
        return 200, {"nodes": self.nodes}


ROUTES: list[tuple[str, Callable[..., Any]]] = [
    ("POST /tokens", FakePlatform.login),
    ("GET /tokens", FakePlatform.list_tokens),
    ("DELETE /tokens/(.+)", FakePlatform.revoke),
    ("GET /account", FakePlatform.account),
    ("GET /policy", FakePlatform.policy),
    ("POST /objects/batch", FakePlatform.batch),
    ("GET /objects", FakePlatform.list_objects),
    (r"PUT /objects/(obj_\d+)/parts/(\d+)", FakePlatform.put_part),
    (r"POST /objects/(obj_\d+)/complete", FakePlatform.complete),
    (r"DELETE /objects/(obj_\d+)", FakePlatform.delete_object),
    (r"GET /objects/(obj_\d+)/content", FakePlatform.read_object),
    ("POST /jobs", FakePlatform.create_job),
    ("GET /jobs", FakePlatform.list_jobs),
    (r"GET /jobs/(\w+)", FakePlatform.show_job),
    (r"DELETE /jobs/(\w+)", FakePlatform.delete_job),
    (r"POST /jobs/(\w+)/cancel", FakePlatform.cancel_job),
    (r"GET /jobs/(\w+)/logs", FakePlatform.read_log),
    (r"GET /jobs/(\w+)/events", FakePlatform.read_events),
    (r"GET /explain/(\w+)", FakePlatform.explain),
    ("GET /nodes", FakePlatform.list_nodes),
]


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        """A client that went away in the middle is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    platform: FakePlatform
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = unquote(parts.path).removeprefix(API)
        seen = Seen(self.command, path, query, headers, body, self.client_address[1])
        self.platform.seen.append(seen)
        self.platform.before(seen)
        fault = self.take_fault(seen)
        if fault is not None and fault.kind == "cut":
            self.cut()
            return
        try:
            status, data, extra = self.platform.answer(seen)
        except Refusal as refusal:
            status, data, extra = refusal.status, {"error": refusal.error}, {}
        if fault is not None and fault.kind == "lose":
            self.cut()
            return
        if fault is not None and fault.kind == "answer":
            status, data, extra = fault.status, fault.body, fault.headers
        raw = data if isinstance(data, bytes) else b"" if data is None else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), "X-Request-Id": "req-12345678", **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        if fault is not None and fault.kind == "half":
            self.wfile.write(raw[: len(raw) // 2])
            self.cut()
            return
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one

    def take_fault(self, seen: Seen) -> Fault | None:
        for fault in self.platform.faults:
            if fault.method == seen.method and re.fullmatch(fault.path, seen.path):
                self.platform.faults.remove(fault)
                return fault
        return None

    def cut(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_args: object) -> None:
        """Quiet."""
