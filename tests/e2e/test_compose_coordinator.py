"""The coordinator of protocol v1 in its container: on the volunteers' port, below the platform's address, killed."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import secrets
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from coordinator_support import moved
from e2e_compose import ComposeStack
from e2e_support import until
from safetensors.numpy import load, save

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]

BELOW = "/v1coordinator"


class Volunteers:
    """Asks the stack's coordinator with its key, at one of its two addresses."""

    def __init__(self, stack: ComposeStack, base: str) -> None:
        self.stack = stack
        self._base = urlsplit(base)
        self.key = stack.compose("exec", "--no-TTY", "coordinator-v1", "cat", "/run/mingora/coordinator/key").strip()

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body; by ``headers`` alone if there are any."""
        context = ssl.create_default_context(cafile=self.stack.ca_file)
        connection = http.client.HTTPSConnection("localhost", self._base.port, context=context, timeout=60)
        sent = {"X-Anahtar": self.key} if headers is None else headers
        try:
            connection.request(method, self._base.path + path, body or None, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def told(self, path: str) -> Any:
        status, _headers, body = self.ask("GET", path)
        assert status == 200, body
        return json.loads(body)

    def end_what_others_left(self) -> None:
        """Close the open round if another test has sent a result to it."""
        while self.told("/durum")["bekleyen_sonuc"]:
            self.work(f"kapatan-{secrets.token_hex(4)}", 0.0)

    def work(self, worker: str, by: float) -> int:
        """A round of a worker: task, adapter, result; the round's number."""
        task = self.told(f"/gorev?isci={worker}")
        _status, _headers, weights = self.ask("GET", "/agirlik")
        assert hashlib.sha256(weights).hexdigest() == task["agirlik_sha256"]
        path = f"/sonuc?isci={worker}&tur={task['tur']}"
        status, _headers, body = self.ask("POST", path, save(moved(load(weights), by)))
        assert (status, json.loads(body)) == (200, {"tamam": True, "tur": task["tur"]})
        return int(task["tur"])


@pytest.fixture(params=["port", "path"])
def volunteers(request: pytest.FixtureRequest, compose_stack: ComposeStack) -> Volunteers:
    """At the port whose root it is, or below the platform's own address."""
    base = compose_stack.volunteer_url if request.param == "port" else compose_stack.url + BELOW
    return Volunteers(compose_stack, base)


@pytest.mark.req("OPS-1", "CONF-1", "COORD-1", "COORD-3")
def test_it_is_conformant_through_the_gateway(compose_stack: ComposeStack, tmp_path: Path) -> None:
    key = Volunteers(compose_stack, compose_stack.volunteer_url).key
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "mingora_coordinator", "conformance", "--url", compose_stack.volunteer_url,
         "--key", key, "--full", "--json", str(report)],
        env={**os.environ, "SSL_CERT_FILE": str(compose_stack.ca_file)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["conformant"] is True


@pytest.mark.req("OPS-1", "COORD-6")
def test_a_result_that_was_acknowledged_survives_the_container(volunteers: Volunteers) -> None:
    stack = volunteers.stack
    volunteers.end_what_others_left()
    first, second = (f"{name}-{volunteers.told('/durum')['ozet']}" for name in ("ali", "veli"))
    number = volunteers.work(first, 0.25)
    before = volunteers.told("/durum")
    assert before["bekleyen_sonuc"] == [first]
    stack.kill("coordinator-v1")
    status, headers, body = volunteers.ask("GET", "/durum")
    assert (status, headers["Retry-After"], json.loads(body)) == (503, "2", {"hata": "koordinatöre ulaşılamıyor"})
    stack.start("coordinator-v1")
    until(lambda: stack.healthy("coordinator-v1"), 60, "the coordinator is healthy again")
    after = volunteers.told("/durum")
    kept = ("tur", "bekleyen_sonuc", "ozet", "gunluk")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert volunteers.told(f"/gorev?isci={first}") == {"bekle": True, "tur": number}
    assert volunteers.work(second, 0.5) == number
    until(lambda: volunteers.told("/durum")["tur"] == number + 1, 60, "the round closes")
    assert sorted(volunteers.told("/durum")["gunluk"][-1]["sonuclar"]) == [first, second]
    words = ("exec", "--no-TTY", "coordinator-v1", "mingora-coordinator", "status", "--json")
    assert json.loads(stack.compose(*words))["round"] == number + 1


@pytest.mark.req("OPS-1", "COORD-4", "COORD-6")
def test_outside_there_are_the_protocol_and_the_page_and_a_key_for_them(volunteers: Volunteers) -> None:
    assert volunteers.ask("GET", "/bilgi", headers={})[0] == 200
    assert volunteers.told("/bilgi")["anahtar_gerekli"] is True
    for path in ("/durum", "/gorev?isci=ali", "/agirlik", "/", "/sayfa/page.js", "/metrics"):
        assert volunteers.ask("GET", path, headers={})[0] == 401, path
    word = base64.b64encode(f":{volunteers.key}".encode()).decode()
    for path in ("/", "/sayfa/page.js", "/sayfa/durum.json", "/metrics"):
        assert volunteers.ask("GET", path, headers={"Authorization": f"Basic {word}"})[0] == 200, path
    for path in ("/healthz", "/readyz", "//healthz", "/%68ealthz", "/sayfa/../healthz", "/nothing"):
        status, _headers, body = volunteers.ask("GET", path)
        assert (status, json.loads(body)) == (404, {"hata": "bulunamadı"}), path


@pytest.mark.req("OPS-1", "REST-2", "COORD-1")
def test_who_sends_too_much_reads_why(volunteers: Volunteers) -> None:
    """The gateway's limit of the other services, and its buffers, are not in the way."""
    for size in (1 << 20, 30 << 20):
        status, _headers, body = volunteers.ask("POST", "/sonuc?isci=ali&tur=0", bytes(size))
        assert (status, json.loads(body)) == (413, {"hata": "gövde çok büyük"})


@pytest.mark.req("OPS-3", "COORD-5")
def test_no_log_tells_who_asked(volunteers: Volunteers) -> None:
    secret = "nobody-shall-read-this-name"
    body = json.dumps({"soru": "neden?", "isci": secret}).encode()
    volunteers.ask("POST", f"/soru?isci={secret}", body)
    volunteers.told(f"/gorev?isci={secret}")
    for service in ("gateway", "coordinator-v1"):
        logged = volunteers.stack.compose("logs", "--no-color", service)
        assert secret not in logged, service
        assert volunteers.key not in logged, service
        assert not [line for line in logged.splitlines() if "/soru" in line and "remote_ip" in line], service
