"""One request id through all logs, figures of a whole job, no secret in any log, and more waits than places."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import re
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from e2e_support import PASSWORD, RunningStack, User, make_project, until
from prometheus_client.parser import text_string_to_metric_families

API = "/api/research/v1"


def ask(stack: RunningStack, method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, bytes]:
    parts = urlsplit(stack.url)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)) as connection:
        text = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def logged(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found


def metrics_key(stack: RunningStack) -> str:
    return stack.folder.metrics_key_file().read_text(encoding="ascii")


def figures(stack: RunningStack) -> dict[str, float]:
    """Sums over labels."""
    status, text = ask(stack, "GET", "/metrics", {"Authorization": f"Bearer {metrics_key(stack)}"})
    assert status == 200
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


@pytest.fixture
def own_stack(new_stack: Callable[..., RunningStack]) -> Iterator[RunningStack]:
    """A stack whose logs and figures are this test's alone."""
    stack = new_stack()
    stack.start()
    yield stack


@pytest.mark.req("OPS-3")
def test_one_id_leads_through_services_tasks_and_worker(
    own_stack: RunningStack, new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    user = new_user(own_stack)
    worker = user.worker()
    until(lambda: user.json("nodes")["nodes"] != [], 20, "the worker is registered")
    until(lambda: user.json("nodes")["nodes"][0]["state"] == "idle", 20, "the worker waits")
    project = make_project(tmp_path / "p", ["sh", "-c", "mkdir -p results; echo 1 > results/a"])
    # The content is there already, so that the submission below is one request.
    first = user.submit(project, "first")
    user.run("wait", first, "--timeout", "60")
    until(lambda: user.json("nodes")["nodes"][0]["state"] == "idle", 20, "the worker waits again")
    job = user.job(first)
    given = f"trace-{secrets.token_hex(8)}"
    headers = {"Authorization": f"Bearer {user.login_record()['token']}", "Idempotency-Key": "second",
               "X-Request-Id": given, "Content-Type": "application/json"}  # fmt: skip
    status, answer = ask(own_stack, "POST", f"{API}/jobs", headers, {"spec": job["spec"], "inputs": job["inputs"]})
    assert status == 201, answer
    user.run("wait", json.loads(answer)["id"], "--timeout", "60")
    worker.terminate()
    worker.wait(20)

    server = [line for line in logged(own_stack.folder.logs / "server.log") if line.get("request") == given]
    seen = {(line["service"], line["method"], re.sub(r"(node|obj|job)_[\w-]+", "ID", line["path"])) for line in server
            if line["event"] == "request"}  # fmt: skip
    assert ("api", "POST", f"{API}/jobs") in seen
    pins = [line for line in server if line["service"] == "blobstore" and line["path"].startswith("/internal/pins")]
    assert pins or not job["inputs"]
    assert ("scheduler", "POST", f"{API}/nodes/ID/report") in seen
    assert ("scheduler", "POST", f"{API}/nodes/ID/ready") in seen
    tasks = [line for line in logged(own_stack.folder.logs / "tasks.log") if line.get("request") == given]
    assert {line["task"] for line in tasks} >= {"place", "archive_log"}
    told = [line for line in logged(user.home / "worker.log") if line.get("request") == given]
    assert {line["event"] for line in told} >= {"job", "job_ended"}


@pytest.mark.req("OPS-3")
def test_figures_tell_of_a_job(
    own_stack: RunningStack, new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    user = new_user(own_stack)
    job_id = user.submit(make_project(tmp_path / "p", ["true"], {"data.bin": "x" * 100_000}))
    before = figures(own_stack)
    assert before["mingora_jobs"] == 1
    assert before["mingora_placements_total"] == 0
    assert before["mingora_queue_age_seconds"] >= 0
    assert before["mingora_received_bytes_total"] > 100_000
    user.work_once()
    user.run("wait", job_id, "--timeout", "30")
    until(lambda: figures(own_stack)["mingora_placements_total"] == 1, 10, "the placement is counted")
    after = figures(own_stack)
    assert after["mingora_jobs"] == 0
    assert after["mingora_tasks_total"] >= 2
    assert 0 <= after["mingora_sweep_age_seconds"] < 600
    assert after["mingora_sent_bytes_total"] > 100_000
    assert after["mingora_requests_total"] > before["mingora_requests_total"]
    for headers in ({}, {"Authorization": "Bearer guessed"}, {"X-Internal-Key": "guessed"}):
        assert ask(own_stack, "GET", "/metrics", headers)[0] == 404


def spoil(stack: RunningStack, user: User, token: str) -> list[str]:
    """Requests that carry secrets where they don't belong; what else is secret in them."""
    wrong, odd = f"wrong-{secrets.token_hex(12)}", f"odd-{secrets.token_hex(12)}"
    login = {"identifier": user.name, "password": wrong}
    plain = {"Content-Type": "application/json"}
    assert ask(stack, "POST", f"{API}/tokens", plain, login)[0] == 401
    assert ask(stack, "POST", f"{API}/tokens", plain, {**login, "unknown": wrong})[0] == 400
    assert ask(stack, "POST", f"{API}/tokens", plain, f'{{"password": "{wrong}"'.encode())[0] == 400
    for header in (f"Bearer {odd}", odd, f"Basic {odd}", f"Bearer {token} {odd}", f"Bearer {token}x"):
        assert ask(stack, "GET", f"{API}/jobs", {"Authorization": header})[0] == 401
    assert ask(stack, "GET", f"{API}/jobs?token={token}&access_token={token}", {})[0] == 401
    assert ask(stack, "GET", f"{API}/jobs/{token}", {"Authorization": f"Bearer {token}"})[0] == 404
    assert ask(stack, "GET", f"{API}/jobs", {"X-Request-Id": token})[0] == 401
    assert ask(stack, "GET", f"/metrics?key={metrics_key(stack)}", {})[0] == 404
    for path in ("/internal/pins", "/metrics"):
        assert ask(stack, "GET", path, {"X-Internal-Key": odd, "Authorization": f"Bearer {odd}"})[0] in (404, 405)
    with closing(socket.create_connection((urlsplit(stack.url).hostname, urlsplit(stack.url).port))) as broken:
        broken.sendall(f"GET / HTTP/1.1\r\nAuthorization Bearer {odd}\r\nHost: x\r\n\r\n".encode())
        broken.recv(4096)
    return [wrong, odd]


@pytest.mark.req("OPS-3", "AUTH-3")
def test_no_secret_is_in_any_log(
    own_stack: RunningStack, new_user: Callable[[RunningStack], User], tmp_path: Path
) -> None:
    """A job with failures round it; every secret that was made is looked for in everything that was written down."""
    user, said = new_user(own_stack), b""
    record = user.login_record()
    held = [record["token"], *spoil(own_stack, user, record["token"])]
    failing = user.submit(make_project(tmp_path / "failing", ["sh", "-c", "exit 3"]))
    worker = user.worker()
    said += user.run("wait", failing, "--timeout", "60", status=100).stderr
    job_id = user.submit(make_project(tmp_path / "good", ["sleep", "2"]))
    until(lambda: bool(list((user.home / "worker" / "jobs").glob("*/lease.json"))), 30, "the worker has the lease")
    for path in (user.home / "worker" / "jobs").glob("*/lease.json"):
        held.append(json.loads(path.read_text())["token"])
    held.append(json.loads((user.home / "worker" / "node.json").read_text())["token"])
    own_stack.process_of("valkey").kill()  # tasks and services lose their Redis, and say so
    said += user.run("wait", job_id, "--timeout", "60").stderr
    with closing(sqlite3.connect(own_stack.folder.platform, timeout=10)) as connection, connection:
        connection.execute("UPDATE tokens SET expires_at = 1")
    said += user.run("status", job_id, status=3).stderr
    said += user.run("login", "--server", own_stack.url, "--identifier", user.name, "--password-stdin", status=3,
                     stdin=f"{held[1]}\n".encode()).stderr  # fmt: skip
    worker.terminate()
    worker.wait(20)
    own_stack.stop()

    held += [PASSWORD, metrics_key(own_stack), own_stack.folder.internal_key_file().read_text(encoding="ascii")]
    assert len(held) == len(set(held)) >= 8
    logs = {path.name: path.read_bytes() for path in own_stack.folder.logs.iterdir()}
    logs["worker.log"], logs["mingora"] = (user.home / "worker.log").read_bytes(), said
    assert b'"status": 401' in logs["server.log"], "the failures were logged"
    for name, text in logs.items():
        assert [number for number, secret in enumerate(held) if secret.encode() in text] == [], name


@pytest.mark.req("JOB-9", "OPS-3")
def test_more_claims_than_places_are_answered_at_once_and_keep_nobody_out(
    own_stack: RunningStack, new_user: Callable[[RunningStack], User]
) -> None:
    users = [new_user(own_stack), new_user(own_stack)]
    nodes = []
    for user in users:
        token = user.login_record()["token"]
        for number in range(150):
            body = {
                "nodeKey": secrets.token_hex(16), "name": f"n{number}", "version": "1", "platform": "linux",
                "machineId": f"m{number}", "cpu": 1, "memoryMiB": 100, "runtimes": ["native"],
            }  # fmt: skip
            status, answer = ask(own_stack, "POST", f"{API}/nodes", {"Authorization": f"Bearer {token}"}, body)
            assert status in (200, 201), answer
            nodes.append(json.loads(answer))
    parts = urlsplit(own_stack.url)
    token = users[0].login_record()["token"]
    with ExitStack() as opened, concurrent.futures.ThreadPoolExecutor(16) as pool:
        started = time.monotonic()

        def claim(node: dict[str, Any]) -> socket.socket:
            client = opened.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=60))
            text = json.dumps({"claimId": secrets.token_hex(16), "wait": 15})
            head = (
                f"POST {API}/nodes/{node['id']}/claim HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {node['token']}\r\n"
            )
            client.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            return client

        clients = list(pool.map(claim, nodes))
        until(lambda: figures(own_stack)["mingora_waits_refused_total"] == 300 - 256, 13, "the rest is answered")
        waits = []
        for _ in range(20):
            began = time.monotonic()
            assert ask(own_stack, "GET", f"{API}/policy", {"Authorization": f"Bearer {token}"})[0] == 200
            waits.append(time.monotonic() - began)
        if time.monotonic() - started < 14:
            assert figures(own_stack)["mingora_waiting_reads"] > 0
        assert sorted(waits)[len(waits) // 2] < 1, waits  # 5 ms on an idle machine
        answers = [client.recv(65536) for client in clients]
    assert all(answer.startswith(b"HTTP/1.1 204") for answer in answers)
    assert sum(b"Retry-After: 1" in answer for answer in answers) == 300 - 256
