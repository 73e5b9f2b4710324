"""The HTTP layer against a server that misbehaves."""

from __future__ import annotations

import socket
import threading

import pytest
from service.cli.mingora_fake import TOKEN, FakePlatform, Seen

from mingora.errors import ApiError, InsecureServer, LostAnswer, NotSent, OutcomeUnknown, RateLimited, TlsError
from mingora.transport import Transport


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_a_read_whose_answer_is_lost_is_asked_again(
    platform: FakePlatform, transport: Transport, sleeps: list[float], kind: str
) -> None:
    platform.fail("GET", "/account", kind, times=2)
    assert transport.request_json("GET", "/account").data["name"] == "ada"
    assert len(platform.asked("GET", "/account")) == 3
    assert len(sleeps) == 2


@pytest.mark.req("CLI-10")
def test_a_body_that_breaks_off_is_asked_again(platform: FakePlatform, transport: Transport) -> None:
    platform.fail("GET", "/policy", "half")
    assert transport.request_json("GET", "/policy").data["server"] == "fake"


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_a_write_whose_answer_is_lost_is_not_repeated(platform: FakePlatform, transport: Transport, kind: str) -> None:
    platform.add_job()
    platform.fail("POST", "/jobs/.*", kind)
    with pytest.raises(OutcomeUnknown) as caught:
        transport.request_json("POST", "/jobs/job_00000001/cancel", body={})
    assert isinstance(caught.value.cause, LostAnswer)
    assert caught.value.exit_code == 7
    assert len(platform.asked("POST", ".*")) == 1


@pytest.mark.req("CLI-10")
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_write_answered_by_a_server_fault_is_unknown(
    platform: FakePlatform, transport: Transport, status: int
) -> None:
    platform.add_job()
    platform.fail("POST", "/jobs/.*", "answer", status)
    with pytest.raises(OutcomeUnknown):
        transport.request_json("POST", "/jobs/job_00000001/cancel", body={})
    assert len(platform.asked("POST", ".*")) == 1


@pytest.mark.req("CLI-10")
def test_a_server_away_is_tried_a_few_times(sleeps: list[float]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = Transport(f"http://127.0.0.1:{taken.getsockname()[1]}", token=TOKEN, sleep=sleeps.append)
        with pytest.raises(NotSent) as caught:
            transport.request_json("POST", "/jobs", body={}, idempotent=False)
    assert "is running" in (caught.value.hint or "")
    assert len(sleeps) == 4
    assert sleeps == sorted(sleeps) or max(sleeps) < 4


@pytest.mark.req("CLI-10")
def test_a_short_retry_after_is_waited_out_for_a_write_too(
    platform: FakePlatform, transport: Transport, sleeps: list[float]
) -> None:
    platform.add_job()
    platform.fail("POST", "/jobs/.*", "answer", 429, times=2, code="rate_limited", headers={"Retry-After": "60"})
    assert transport.request_json("POST", "/jobs/job_00000001/cancel", body={}).status == 202
    assert sleeps == [60, 60]


@pytest.mark.req("CLI-10")
def test_a_long_retry_after_is_reported_at_once(
    platform: FakePlatform, transport: Transport, sleeps: list[float]
) -> None:
    platform.fail("GET", "/account", "answer", 429, code="rate_limited", headers={"Retry-After": "61"})
    with pytest.raises(RateLimited) as caught:
        transport.request_json("GET", "/account")
    assert (caught.value.retry_after, caught.value.exit_code, sleeps) == (61, 6, [])


@pytest.mark.req("CLI-10")
def test_429_without_retry_after_is_tried_briefly(
    platform: FakePlatform, transport: Transport, sleeps: list[float]
) -> None:
    platform.fail("GET", "/account", "answer", 429, times=9, code="rate_limited")
    with pytest.raises(RateLimited):
        transport.request_json("GET", "/account")
    assert len(sleeps) == 4
    assert sum(sleeps) < 10


@pytest.mark.req("REST-2")
def test_an_error_answer_keeps_its_fields(platform: FakePlatform, transport: Transport) -> None:
    platform.fail(
        "GET", "/account", "answer", 403, code="insufficient_scope", required="research:read", retryable=False
    )
    with pytest.raises(ApiError) as caught:
        transport.request_json("GET", "/account")
    error = caught.value
    assert (error.code, error.status, error.fields, error.exit_code) == (
        "insufficient_scope", 403, {"required": "research:read"}, 3,
    )  # fmt: skip
    assert error.request_id == "req-12345678"


@pytest.mark.req("REST-2")
def test_a_page_that_is_not_ours_is_an_error_with_its_status(platform: FakePlatform, transport: Transport) -> None:
    platform.fail("GET", "/account", "answer", 418)
    platform.faults[0].body = {"detail": "teapot"}
    with pytest.raises(ApiError) as caught:
        transport.request_json("GET", "/account")
    assert caught.value.code == "http_418"


@pytest.mark.req("AUTH-5")
def test_a_redirect_is_not_followed(platform: FakePlatform, transport: Transport) -> None:
    platform.fail("GET", "/account", "answer", 307, headers={"Location": "http://127.0.0.1:1/"})
    with pytest.raises(ApiError) as caught:
        transport.request_json("GET", "/account")
    assert caught.value.status == 307
    assert len(platform.seen) == 1


@pytest.mark.req("AUTH-5")
def test_plain_http_beyond_loopback_is_refused_before_anything_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("resolved")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", resolve)
    for address in (
        "http://example.org",
        "http://10.0.0.1:8080",
        "http://localhost.example.org",
        "http://127.0.0.1.nip.io",
    ):
        with pytest.raises(InsecureServer):
            Transport(address)


@pytest.mark.req("CLI-9")
def test_a_thread_keeps_its_connection(platform: FakePlatform, transport: Transport) -> None:
    for _n in range(5):
        transport.request_json("GET", "/account")
    transport.request_json("GET", "/policy")
    with pytest.raises(ApiError):
        transport.request_json("GET", "/jobs/job_unknown")
    transport.request_json("GET", "/account")
    assert len({seen.connection for seen in platform.seen}) == 1
    for _n in range(3):
        thread = threading.Thread(target=transport.request_json, args=("GET", "/account"))
        thread.start()
        thread.join()
    assert len({seen.connection for seen in platform.seen}) == 4
    assert len(transport._kept) == 2  # this thread's and the last one's: those of ended threads are closed


@pytest.mark.req("CLI-10")
def test_a_write_never_goes_out_on_a_connection_the_server_has_closed(
    platform: FakePlatform, transport: Transport
) -> None:
    platform.add_job()
    transport.request_json("GET", "/account")
    (kept,) = (one.connection for one in transport._kept.values())
    kept.sock.shutdown(socket.SHUT_RD)  # as readable as a connection that the other side has ended
    assert transport.request_json("POST", "/jobs/job_00000001/cancel", body={}).status == 202


@pytest.mark.req("REST-1")
def test_a_token_may_be_a_function_asked_each_time(platform: FakePlatform) -> None:
    tokens = iter(["mgu_old", TOKEN])
    with Transport(platform.url, token=lambda: next(tokens)) as transport:
        with pytest.raises(ApiError):
            transport.request_json("GET", "/account")
        assert transport.request_json("GET", "/account").status == 200


@pytest.mark.req("AUTH-5")
def test_a_server_without_tls_is_a_tls_error_and_not_tried_again(platform: FakePlatform, sleeps: list[float]) -> None:
    port = platform.server.server_address[1]
    with Transport(f"https://127.0.0.1:{port}", token=TOKEN, sleep=sleeps.append) as transport, pytest.raises(TlsError):
        transport.request_json("GET", "/account")
    assert sleeps == []
    assert platform.seen == []


@pytest.mark.req("CLI-10")
def test_an_answer_that_takes_too_long_is_lost(platform: FakePlatform, transport: Transport) -> None:
    held = threading.Event()

    def hold(_seen: Seen) -> None:
        held.wait(5)

    platform.before = hold
    with pytest.raises(LostAnswer, match="timed out"):
        transport.request_json("GET", "/account", timeout=0.05, attempts=1)
    held.set()
