"""Who may do what, for every route that there is: the cases are made from the app's route table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from service.api.api_harness import PREFIX, Api
from support import FakeClock, Seed, bearer

from mingora_common.auth import SCOPES
from mingora_common.db import schema
from mingora_common.ids import new_id

OPEN = {("POST", f"{PREFIX}/tokens"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"),
        ("GET", f"{PREFIX}/openapi/api.json")}  # fmt: skip


class Route(NamedTuple):
    method: str
    path: str
    scope: str
    kinds: tuple[str, ...]

    def fill(self, **ids: str) -> str:
        path = self.path
        for name, value in {"job_id": "job_12345678", "token_id": "tok_12345678", **ids}.items():
            path = path.replace(f"<{name}>", value)
        assert "<" not in path, "a new parameter needs a value here"
        return path


def routes(api: Api) -> Iterator[Route]:
    """Every guarded route; one without a guard fails the test."""
    for rule in api.app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            if (method, rule.rule) not in OPEN:
                view: Any = api.app.view_functions[rule.endpoint]
                yield Route(method, rule.rule, view.mingora_scope, view.mingora_kinds)


def ask(api: Api, route: Route, headers: dict[str, str], **ids: str) -> Any:
    extra = {"Idempotency-Key": "k"} if (route.method, route.path) == ("POST", f"{PREFIX}/jobs") else {}
    return api.client.open(route.fill(**ids), method=route.method, headers={**headers, **extra})


@pytest.mark.req("REST-2", "AUTH-6")
def test_the_route_table_is_the_documented_one(api: Api) -> None:
    found = {(route.method, route.path.removeprefix(PREFIX), route.scope.partition(":")[2]) for route in routes(api)}
    assert found == {
        ("GET", "/tokens", "read"), ("DELETE", "/tokens/<token_id>", "write"), ("GET", "/account", "read"),
        ("GET", "/policy", "read"), ("POST", "/jobs", "write"), ("GET", "/jobs", "read"),
        ("GET", "/jobs/<job_id>", "read"), ("GET", "/jobs/<job_id>/events", "read"),
        ("GET", "/jobs/<job_id>/logs", "read"), ("POST", "/jobs/<job_id>/cancel", "write"),
        ("DELETE", "/jobs/<job_id>", "write"),
    }  # fmt: skip


@pytest.mark.req("REST-2", "AUTH-3", "AUTH-4", "AUTH-9")
def test_every_route_refuses_every_bad_token(api: Api, seed: Seed, clock: FakeClock, account: str) -> None:
    expired, revoked = seed.token(account, ttl=1000), seed.token(account)
    clock.advance(1)
    seed.revoke(revoked)
    disabled = seed.account("disabled")
    of_disabled = seed.token(disabled)
    with seed.engine.begin() as connection:
        connection.execute(sa.update(schema.accounts).where(schema.accounts.c.id == disabled).values(disabled_at=1))
    node = seed.work_token(account, "node_12345678")
    lease = seed.work_token(account, "node_12345678", seed.lease(account, "node_12345678", seed.job(account)))
    headers: list[dict[str, str]] = [
        {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x"},
        {"Authorization": "Basic YWxpOnNpZnJl"}, {"Authorization": seed.token(account)},
        bearer("mgu_" + "A" * 43), bearer(seed.token(account) + "A"), bearer(expired), bearer(revoked),
        bearer(of_disabled), bearer(node), bearer(lease),
    ]  # fmt: skip
    for route in routes(api):
        for header in headers:
            answer = ask(api, route, header)
            assert answer.status_code == 401, (route, header)
            assert answer.get_json()["error"]["code"] == "invalid_token"
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.req("REST-2", "REST-3")
def test_every_route_names_the_scope_that_is_missing(api: Api, seed: Seed, account: str) -> None:
    for route in routes(api):
        token = seed.token(account, tuple(scope for scope in SCOPES if scope != route.scope))
        answer = ask(api, route, bearer(token))
        assert answer.status_code == 403, route
        error = answer.get_json()["error"]
        assert (error["code"], error["required"]) == ("insufficient_scope", route.scope)


@pytest.mark.req("REST-2", "AUTH-6")
def test_foreign_unknown_and_malformed_ids_look_the_same(api: Api, seed: Seed, token: str) -> None:
    other = seed.account("veli")
    job_id, node_token, token_id = seed.job(other), seed.work_token(other, "node_12345678"), new_id("tok")
    seed.token(other)
    with seed.engine.begin() as connection:
        token_id = connection.execute(
            sa.select(schema.tokens.c.id).where(schema.tokens.c.account_id == other)
        ).scalar_one()
        node_token = connection.execute(sa.select(schema.work_tokens.c.id)).scalar_one()
    ids = {
        "job_id": [job_id, new_id("job"), "job_x", "obj_12345678", "job_" + "x" * 200, "..%00", "%F0%9F%98%80"],
        "token_id": [token_id, node_token, new_id("tok"), "x", "%00"],
    }
    for route in routes(api):
        for name, values in ids.items():
            if f"<{name}>" not in route.path:
                continue
            bodies = set()
            for value in values:
                answer = ask(api, route, bearer(token), **{name: value})
                assert answer.status_code == 404, (route, value)
                bodies.add(answer.text)
            assert len(bodies) == 1, route
    # Nothing of the other account's was touched.
    with seed.engine.begin() as connection:
        assert connection.execute(sa.select(schema.cancel_requests)).first() is None
        assert connection.execute(sa.select(schema.token_revocations)).first() is None
        assert connection.execute(sa.select(schema.jobs.c.id)).scalars().all() == [job_id]


@pytest.mark.req("REST-2")
def test_unknown_paths_and_methods_are_errors_of_the_catalogue(api: Api, token: str) -> None:
    unknown = api.call("GET", "/nothing", token)
    assert (unknown.status_code, unknown.get_json()["error"]["code"]) == (404, "not_found")
    method = api.call("PUT", "/jobs", token)
    assert (method.status_code, method.get_json()["error"]["code"]) == (405, "method_not_allowed")
    answer = api.call("GET", "/policy", token, headers={"X-Request-Id": "given-by-me"})
    assert answer.headers["X-Request-Id"] == "given-by-me"
