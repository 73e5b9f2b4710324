"""The frame every service shares: errors as JSON, request ids, bodies bounded and drained, waits bounded."""

from __future__ import annotations

import io
from typing import Any

import pytest
from flask import Flask
from gunicorn.http.errors import InvalidChunkSize
from support import FakeClock, Seed, bearer

from mingora_common.auth import READ, TokenReader
from mingora_common.db.engine import Database
from mingora_common.drain import DrainBody
from mingora_common.errors import QUOTA_EXCEEDED, RATE_LIMITED, ServiceError
from mingora_common.http import content_length, json_body, make_app, needs, principal, wait_seconds


def error(answer: Any) -> Any:
    """The error member of an answer."""
    return answer.json["error"]


@pytest.fixture
def app(sqlite_url: str, clock: FakeClock) -> Flask:
    app = make_app("test", TokenReader(Database(sqlite_url, None), clock))

    @app.post("/echo")
    def echo() -> Any:
        return json_body(["a", "b"])

    @app.get("/me")
    @needs(READ)
    def me() -> Any:
        return {"account": principal().account_id}

    @app.get("/boom")
    def boom() -> Any:
        raise RuntimeError("a secret detail")

    @app.get("/over")
    def over() -> Any:
        raise ServiceError(QUOTA_EXCEEDED, limit="maxFiles", allowed=1, used=1)

    @app.get("/slow")
    def slow() -> Any:
        raise ServiceError(RATE_LIMITED, retry_after=7)

    @app.put("/sized")
    def sized() -> Any:
        return {"length": content_length(10)}

    return app


@pytest.fixture
def seed(sqlite_url: str, clock: FakeClock) -> Any:
    seed = Seed(sqlite_url, clock)
    yield seed
    seed.engine.dispose()


@pytest.mark.req("REST-2")
@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', b"\xff", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e400}', b'{"c":1}', b"[" * 100_000, b"null"],
)
def test_bodies_that_are_not_the_expected_object_are_400(app: Flask, body: bytes) -> None:
    answer = app.test_client().post("/echo", data=body)
    assert answer.status_code == 400
    assert error(answer)["code"] == "invalid_request"


@pytest.mark.req("REST-2")
def test_an_unknown_field_is_named(app: Flask) -> None:
    answer = app.test_client().post("/echo", json={"a": 1, "tenant": "other"})
    assert error(answer)["field"] == "tenant"


@pytest.mark.req("REST-2")
def test_faults_of_ours_tell_nothing(app: Flask) -> None:
    answer = app.test_client().get("/boom")
    assert (answer.status_code, error(answer)["code"]) == (500, "internal")
    assert "secret detail" not in answer.text


@pytest.mark.req("REST-2")
def test_refusals_carry_their_fields_and_retry_after(app: Flask) -> None:
    over, slow = app.test_client().get("/over"), app.test_client().get("/slow")
    assert error(over)["limit"] == "maxFiles"
    assert error(over)["retryable"] is False
    assert (slow.status_code, slow.headers["Retry-After"], error(slow)["retryable"]) == (429, "7", True)


@pytest.mark.req("REST-2")
def test_unknown_paths_and_methods_are_json_too(app: Flask) -> None:
    assert error(app.test_client().get("/nowhere"))["code"] == "not_found"
    assert error(app.test_client().delete("/echo"))["code"] == "method_not_allowed"


@pytest.mark.req("OPS-3")
def test_request_ids_are_taken_over_when_they_are_harmless(app: Flask) -> None:
    client = app.test_client()
    assert client.get("/nowhere", headers={"X-Request-Id": "abc-12345"}).headers["X-Request-Id"] == "abc-12345"
    assert client.get("/nowhere", headers={"X-Request-Id": "<script>"}).headers["X-Request-Id"] != "<script>"


@pytest.mark.req("REST-2", "REST-3", "AUTH-3")
def test_tokens_are_needed_with_their_scope_and_kind(app: Flask, seed: Seed) -> None:
    client, account = app.test_client(), seed.account()
    assert client.get("/me").status_code == 401
    assert "WWW-Authenticate" in client.get("/me").headers
    assert client.get("/me", headers=bearer(seed.token(account))).json == {"account": account}
    missing = client.get("/me", headers=bearer(seed.token(account, scopes=("research:work",))))
    assert (missing.status_code, error(missing)["required"]) == (403, READ)
    wrong_kind = client.get("/me", headers=bearer(seed.work_token(account, "node_12345678")))
    assert wrong_kind.status_code == 401


@pytest.mark.req("BLOB-1")
def test_lengths_are_needed_and_bounded(app: Flask) -> None:
    client = app.test_client()
    assert client.put("/sized", data=b"x" * 10).json == {"length": 10}
    assert error(client.put("/sized", data=b"x" * 11))["allowed"] == 10
    assert client.put("/sized", headers={"Transfer-Encoding": "chunked"}).status_code == 411
    assert client.post("/echo").status_code == 411


@pytest.mark.req("BLOB-1")
def test_what_is_left_of_a_refused_body_is_read_before_the_answer_within_bounds() -> None:
    def refuse(_environ: Any, _start: Any) -> list[bytes]:
        return [b"no"]

    for length, taken in ((1000, 1000), (64 << 20, 0)):
        body = io.BytesIO(b"x" * 1000)
        assert DrainBody(refuse)({"CONTENT_LENGTH": str(length), "wsgi.input": body}, print) == [b"no"]
        assert body.tell() == taken


@pytest.mark.req("JOB-9")
@pytest.mark.parametrize(("given", "seconds"), [(None, 0), ("", 0), ("2.5", 2.5), (15, 15), ("900", 15), (0, 0)])
def test_waits_are_cut_to_fifteen_seconds(given: object, seconds: float) -> None:
    assert wait_seconds(given) == seconds


@pytest.mark.req("JOB-9")
@pytest.mark.parametrize("given", ["x", "-1", -1, "nan", True, [1], {}, 10**400])
def test_waits_that_are_no_durations_are_refused(given: object) -> None:
    with pytest.raises(ServiceError):
        wait_seconds(given)


@pytest.mark.req("REST-3")
def test_broken_chunks_end_a_body_and_nothing_else() -> None:
    class Broken:
        def read(self, _size: int = -1) -> bytes:
            raise InvalidChunkSize(b"zz")

    read: list[bytes] = []

    def app(environ: dict[str, Any], _start: object) -> list[bytes]:
        read.append(environ["wsgi.input"].read(10))
        return [b"answered"]

    environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input": Broken()}
    assert DrainBody(app)(environ, print) == [b"answered"]
    assert read == [b""]


@pytest.mark.req("REST-3")
def test_a_chunked_body_that_nobody_read_is_drained_within_bounds() -> None:
    body = io.BytesIO(b"x" * 3_000_000)
    assert DrainBody(lambda _environ, _start: [b"no"], 2_000_000)(
        {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input": body}, print
    ) == [b"no"]
    assert body.tell() == 2_000_000
