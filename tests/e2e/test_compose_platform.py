"""The platform in containers as its users and its operator meet it."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import ssl
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_compose import SERVICES, ComposeStack
from e2e_support import User, make_project, python_project, until

from mingora.errors import ApiError
from mingora.transport import Transport

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]

DOCUMENTS = Path(__file__).parents[2] / "docs" / "openapi"
LINES = 35
ROUNDS = 8
COUNTS = f"""
import pathlib, time
for number in range({LINES}):
    print("line", number, flush=True)
    time.sleep(0.2)
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/done.txt").write_text("done")
"""
NewUser = Callable[[ComposeStack], User]


def ask(stack: ComposeStack, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """One request of a client that trusts the gateway's authority: status, and the JSON of the answer."""
    context = ssl.create_default_context(cafile=stack.ca_file)
    connection = http.client.HTTPSConnection("localhost", stack.port, context=context, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Length": str(len(body)), **headers})
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


@pytest.mark.req("OPS-1", "AUTH-5", "CLI-9", "JOB-4", "AUTH-4")
def test_a_job_from_login_to_download_and_a_revoked_token(
    compose_stack: ComposeStack, new_user: NewUser, tmp_path: Path
) -> None:
    user = new_user(compose_stack)
    data = os.urandom(5 << 20)  # three parts
    project = make_project(tmp_path / "copy", ["sh", "-c", "echo said; mkdir -p results; cp data.bin results/"])
    (project / "data.bin").write_bytes(data)
    job_id = user.submit(project)
    user.work_once()
    user.run("wait", job_id, "--timeout", "30")
    assert user.run("logs", job_id).stdout == b"said\n"
    user.run("download", job_id, "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "data.bin").read_bytes() == data

    token = user.json("token", "list")["tokens"]
    (ours,) = [each for each in token if each["current"]]
    compose_stack.admin("token", "revoke", ours["id"])
    refused = user.run("status", job_id, status=3)
    assert b"log in" in refused.stderr.lower()


@pytest.mark.req("OPS-1", "JOB-4", "JOB-7", "WORK-6")
@pytest.mark.parametrize("service", SERVICES)
def test_one_result_though_a_container_is_killed(
    compose_stack: ComposeStack, new_user: NewUser, tmp_path: Path, service: str
) -> None:
    user = new_user(compose_stack)
    job_id = user.submit(python_project(tmp_path / "counts", COUNTS))
    user.worker()
    until(lambda: b"line 3\n" in user.run("logs", job_id).stdout, 60, "the job runs")
    compose_stack.kill(service)
    time.sleep(2)
    compose_stack.start(service)
    check_whole(user, job_id)
    until(lambda: compose_stack.healthy(service), 60, f"{service} is healthy again")


@pytest.mark.req("OPS-1", "JOB-7")
def test_nothing_is_lost_though_redis_is_emptied(
    compose_stack: ComposeStack, new_user: NewUser, tmp_path: Path
) -> None:
    user = new_user(compose_stack)
    job_id = user.submit(python_project(tmp_path / "counts", COUNTS))
    queued = user.submit(make_project(tmp_path / "queued", ["echo", "queued"]))
    user.worker()
    until(lambda: b"line 3\n" in user.run("logs", job_id).stdout, 60, "the job runs")
    for _ in range(5):
        assert compose_stack.redis("FLUSHALL") == "OK"
        time.sleep(0.3)
    check_whole(user, job_id)
    user.run("wait", queued, "--timeout", "60")
    assert user.run("logs", queued).stdout == b"queued\n"


def check_whole(user: User, job_id: str) -> None:
    """The job succeeded at its first attempt, with its result and every line of its log."""
    user.run("wait", job_id, "--timeout", "100")
    job = user.job(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert [result["path"] for result in job["results"]] == ["done.txt"]
    assert user.run("logs", job_id).stdout == b"".join(b"line %d\n" % number for number in range(LINES))


@pytest.mark.req("OPS-1")
def test_a_container_that_dies_comes_back_by_itself(compose_stack: ComposeStack) -> None:
    (before,) = compose_stack.inspect("scheduler-tasks")
    os.kill(before["State"]["Pid"], 9)
    until(lambda: compose_stack.inspect("scheduler-tasks")[0]["RestartCount"] > before["RestartCount"], 30, "restarted")
    until(lambda: compose_stack.healthy("scheduler-tasks"), 60, "healthy again")


@pytest.fixture(scope="module")
def replicated(compose_stack: ComposeStack) -> Iterator[ComposeStack]:
    """Two replicas of api and scheduler."""
    compose_stack.up("--no-recreate", "--scale", "api=2", "--scale", "scheduler=2")
    time.sleep(2)  # the gateway asks DNS once a second
    yield compose_stack
    compose_stack.up("--no-recreate", "--scale", "api=1", "--scale", "scheduler=1")


@pytest.mark.req("OPS-1", "JOB-9")
def test_waiting_reads_are_woken_across_replicas(replicated: ComposeStack, new_user: NewUser, tmp_path: Path) -> None:
    """Six read a job's state and wait; whichever replica takes the cancel, all are answered at once.

    A reader whose replica isn't told would look again after 2 s only.
    """
    user = new_user(replicated)
    token = {"Authorization": f"Bearer {user.login_record()['token']}", "Content-Type": "application/json"}
    project = make_project(tmp_path / "waits", ["true"])
    prompt = 0
    for _ in range(ROUNDS):
        job_id = user.submit(project)
        answered: list[tuple[float, str]] = []

        def read(job_id: str = job_id, answered: list[tuple[float, str]] = answered) -> None:
            path = f"/api/research/v1/jobs/{job_id}?wait=10&knownState=queued"
            _status, job = ask(replicated, "GET", path, b"", **token)
            answered.append((time.monotonic(), job["state"]))

        readers = [threading.Thread(target=read) for _ in range(6)]
        for reader in readers:
            reader.start()
        time.sleep(0.7)
        ask(replicated, "POST", f"/api/research/v1/jobs/{job_id}/cancel", b"{}", **token)
        cancelled = time.monotonic()
        for reader in readers:
            reader.join()
        assert {state for _, state in answered} == {"cancelled"}
        prompt += max(at for at, _ in answered) - cancelled < 1
    assert prompt >= ROUNDS - 2
    assert_both_served(replicated, "api")


@pytest.mark.req("OPS-1", "JOB-9")
def test_waiting_claims_are_woken_across_replicas(replicated: ComposeStack, new_user: NewUser, tmp_path: Path) -> None:
    user = new_user(replicated)
    user.worker()
    until(lambda: any(node["state"] == "idle" for node in user.json("nodes")["nodes"]), 60, "the worker waits")
    for number in range(ROUNDS):
        job_id = user.submit(make_project(tmp_path / f"job{number}", ["true"]))
        user.run("wait", job_id, "--timeout", "30")
    waits = replicated.sql(
        "SELECT attempts.started_at - jobs.created_at FROM attempts JOIN jobs ON jobs.id = attempts.job_id"
        f" JOIN accounts ON accounts.id = jobs.account_id WHERE accounts.name = '{user.name}'"
    )
    assert len(waits) == ROUNDS
    assert statistics.median(map(int, waits)) < 1500  # milliseconds; the worker stages the inputs in between
    assert_both_served(replicated, "scheduler")


def assert_both_served(stack: ComposeStack, service: str) -> None:
    served = [stack.served(container) for container in stack.containers(service)]
    assert len(served) == 2
    assert min(served) > 0, f"a replica of {service} got nothing: {served}"


@pytest.mark.req("OPS-1", "OPS-3", "AUTH-8")
def test_a_request_is_followed_by_its_id_and_a_client_can_not_choose_its_address(compose_stack: ComposeStack) -> None:
    """The gateway's log and the service's have the request's id; neither has the token, nor the address it claims."""
    request, forged = f"request-{secrets.token_hex(8)}", "203.0.113.77"
    token = f"mgu_{secrets.token_urlsafe(32)}"
    headers = {"X-Request-Id": request, "Authorization": f"Bearer {token}", "X-Forwarded-For": forged}
    status, _ = ask(compose_stack, "GET", "/api/research/v1/account", b"", **headers, Forwarded=f"for={forged}")
    assert status == 401
    body = json.dumps({"identifier": "nobody", "password": "a wrong password"}).encode()
    headers["Content-Type"] = "application/json"
    assert ask(compose_stack, "POST", "/api/research/v1/tokens", body, **headers)[0] == 401
    for service in ("gateway", "api"):
        logged = compose_stack.compose("logs", "--no-color", service)
        assert logged.count(request) >= 2, service
        assert token not in logged
        assert forged not in logged
    assert forged not in compose_stack.admin("audit")


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("service", ["api", "blobstore", "scheduler"])
def test_each_service_s_document_is_behind_the_gateway(compose_stack: ComposeStack, service: str) -> None:
    status, document = ask(compose_stack, "GET", f"/api/research/v1/openapi/{service}.json")
    assert (status, document) == (200, json.loads((DOCUMENTS / f"{service}.json").read_text(encoding="utf-8")))


@pytest.mark.req("OPS-1", "REST-2")
@pytest.mark.parametrize(
    "path",
    ["/internal/pins", "/metrics", "/readyz", "/api/research/v1/../../../metrics", "//internal/pins", "/%6detrics",
     "/api/research/v1/objects/..%2f..%2f..%2f..%2finternal/pins"],
)  # fmt: skip
def test_what_is_internal_is_not_behind_the_gateway(compose_stack: ComposeStack, path: str) -> None:
    key = compose_stack.compose("exec", "--no-TTY", "api", "cat", "/run/mingora/internal/key")
    headers = {"X-Internal-Key": key, "Content-Type": "application/json"}
    for method, body in (("GET", b""), ("POST", b'{"owner": "job_x", "accountId": "acc_x", "objects": []}')):
        status, answer = ask(compose_stack, method, path, body, **headers)
        assert (status, answer["error"]["code"]) in [(404, "not_found"), (401, "invalid_token")], answer


@pytest.mark.req("OPS-1", "REST-2", "BLOB-7")
def test_a_body_over_the_limit_is_refused_and_the_client_reads_why(
    compose_stack: ComposeStack, new_user: NewUser
) -> None:
    user = new_user(compose_stack)
    record = user.login_record()
    headers = {"Authorization": f"Bearer {record['token']}", "Content-Type": "application/json"}
    opened = {"size": 1, "sha256": "0" * 64, "kind": "input"}
    status, found = ask(compose_stack, "POST", "/api/research/v1/objects", json.dumps(opened).encode(), **headers)
    assert status == 201
    part = f"/api/research/v1/objects/{found['id']}/parts/0"
    for size in (3 << 20, 30 << 20):
        status, answer = ask(compose_stack, "PUT", part, bytes(size), **headers, **{"X-Content-SHA256": "0" * 64})
        assert (status, answer["error"]["code"]) == (413, "body_too_large")
    key = {"Idempotency-Key": "large"}
    status, answer = ask(compose_stack, "POST", "/api/research/v1/jobs", b" " * (5 << 20), **headers, **key)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    # So large that the connection breaks half-way: our client reads the answer all the same.
    target, digest = part.removeprefix("/api/research/v1"), {"X-Content-SHA256": "0" * 64}
    transport = Transport(compose_stack.url, ca_file=compose_stack.ca_file, token=record["token"])
    with transport, pytest.raises(ApiError) as caught:
        transport.request_json("PUT", target, body=bytes(64 << 20), headers=digest)
    assert caught.value.status == 413


@pytest.mark.req("OPS-1", "AUTH-5")
def test_a_client_that_does_not_trust_the_gateway_is_told_what_to_do(
    compose_stack: ComposeStack, tmp_path: Path
) -> None:
    user = User(compose_stack, tmp_path / "home")
    words = ("login", "--server", compose_stack.url, "--identifier", "x", "--password-stdin")
    refused = user.run(*words, status=1, stdin=b"x\n")
    assert b"--ca-file" in refused.stderr


@pytest.mark.req("OPS-1")
def test_redis_takes_no_command_without_its_password(compose_stack: ComposeStack) -> None:
    bare = compose_stack.compose("exec", "--no-TTY", "redis", "redis-cli", "KEYS", "*")
    assert "NOAUTH" in bare
    wrong = compose_stack.compose("exec", "--no-TTY", "redis", "redis-cli", "--no-auth-warning", "-a", "x", "PING")
    assert "WRONGPASS" in wrong or "NOAUTH" in wrong
    assert compose_stack.redis("PING") == "PONG"


@pytest.mark.req("OPS-1")
def test_a_task_that_is_not_on_the_list_is_refused(compose_stack: ComposeStack) -> None:
    """Who can write to Redis can have no function run but the platform's own tasks."""
    code = """
import sys
from pathlib import Path
from rq import Queue
from rq.serializers import JSONSerializer
from mingora_common.wake import connect
queue = Queue("mingora", connection=connect(Path("/run/mingora/redis/url").read_text()), serializer=JSONSerializer)
print(queue.enqueue("os.mkdir", "/tmp/taken", result_ttl=60).id)
"""
    job = compose_stack.compose("exec", "--no-TTY", "scheduler-tasks", "python3", "-c", code).strip()

    def refused() -> bool:
        said = compose_stack.compose("logs", "scheduler-tasks").splitlines()
        return any('"task_refused"' in line and job in line for line in said)

    until(refused, 30, "the task is refused")
    found = compose_stack.compose("exec", "--no-TTY", "scheduler-tasks", "ls", "/tmp").split()
    assert "taken" not in found
    assert compose_stack.healthy("scheduler-tasks")


@pytest.mark.req("OPS-1")
def test_a_weak_secret_stops_the_start_with_the_fix(compose_stack: ComposeStack) -> None:
    path = "/run/mingora/internal/key"
    weak = "changeme-changeme-changeme-changeme"
    swap = f"cp {path} /tmp/kept && chmod 600 {path} && echo {weak} > {path}; mingora-init /run/mingora"
    back = f"; status=$?; cat /tmp/kept > {path}; chmod 400 {path}; exit $status"
    said = compose_stack.try_compose(
        "run", "--rm", "--no-deps", "--no-TTY", "init", "sh", "-c", swap + back, seconds=60
    )
    assert said.returncode == 1
    assert f"{path} is a placeholder" in said.stderr
    assert "Delete the file" in said.stderr
    assert "changeme" not in said.stderr


@pytest.mark.req("OPS-1")
def test_a_port_that_is_taken_is_named(compose_stack: ComposeStack) -> None:
    # By the engine itself: of a second gateway it may find the fixed address to be taken before it tries the port.
    published = ("--publish", f"127.0.0.1:{compose_stack.port}:8443")
    command = ["docker", "run", "--rm", *published, compose_stack.inspect("gateway")[0]["Image"], "caddy", "version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.returncode != 0
    assert str(compose_stack.port) in said.stderr and "already" in said.stderr


@pytest.mark.req("OPS-1", "JOB-9")
def test_waiting_claims_go_through_the_gateway_and_others_do_not_wait(
    compose_stack: ComposeStack, new_user: NewUser
) -> None:
    user = new_user(compose_stack)
    job_id = user.submit(make_project(user.home / "waits", ["true"]))  # nobody runs it
    token = user.login_record()["token"]
    answers: list[int] = []

    def wait() -> None:
        path = f"/api/research/v1/jobs/{job_id}?wait=5&knownState=queued"
        answers.append(ask(compose_stack, "GET", path, Authorization=f"Bearer {token}")[0])

    threads = [threading.Thread(target=wait) for _ in range(40)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(1)
    asked = time.monotonic()
    assert ask(compose_stack, "GET", "/api/research/v1/policy", Authorization=f"Bearer {token}")[0] == 200
    assert time.monotonic() - asked < 1
    for thread in threads:
        thread.join()
    assert answers == [200] * 40
    assert 4 < time.monotonic() - started < 12
