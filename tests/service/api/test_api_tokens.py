"""Signing in, and listing and revoking tokens over REST."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher
from service.api.api_harness import Api
from sqlalchemy.exc import OperationalError
from support import FakeClock, Seed, bearer

from mingora_api.store import accounts
from mingora_common.auth import TokenReader, hash_token
from mingora_common.clock import DAY
from mingora_common.db import schema
from mingora_common.errors import ServiceError

PASSWORD = "doğru at pili 电池"


@pytest.fixture
def leyla(api: Api, seed: Seed) -> str:
    return sign_up(api, seed, "leyla")


def sign_up(api: Api, seed: Seed, name: str) -> str:
    tenant = seed.tenant(f"of-{name}")
    with api.database.write() as connection:
        return accounts.create_account(
            connection, seed.clock.now(), tenant=tenant, name=name, password_hash=api.passwords.hash(PASSWORD)
        )


def sign_in(api: Api, name: str = "leyla", password: str = PASSWORD, address: str = "192.0.2.1", **more: Any) -> Any:
    body = {"identifier": name, "password": password, **more}
    return api.call("POST", "/tokens", json=body, environ_base={"REMOTE_ADDR": address})


def audit(api: Api) -> list[tuple[str, str, str | None]]:
    with api.database.read() as connection:
        rows = connection.execute(sa.select(schema.audit).order_by(schema.audit.c.id)).all()
    return [(row.action, row.actor, row.address) for row in rows]


@pytest.mark.req("AUTH-2", "AUTH-3", "AUTH-8")
def test_a_password_is_exchanged_for_a_token_of_24_hours(
    api: Api, leyla: str, clock: FakeClock, database_url: str
) -> None:
    answer = sign_in(api)
    assert answer.status_code == 201
    given = answer.get_json()
    token = given.pop("token")
    assert given.pop("id").startswith("tok_")
    assert given == {
        "name": "", "scopes": ["research:read", "research:write", "research:work"],
        "createdAt": "2027-01-15T08:00:00.000Z", "expiresAt": "2027-01-16T08:00:00.000Z", "ttlSeconds": 86400,
        "account": {"id": leyla, "name": "leyla", "tenant": "of-leyla"},
    }  # fmt: skip
    assert answer.headers["Cache-Control"] == "no-store"
    assert api.call("GET", "/account", token).get_json()["name"] == "leyla"
    with api.database.read() as connection:
        stored = connection.execute(sa.select(schema.tokens)).one()
        tables = (schema.accounts, schema.audit, schema.tokens)
        dump = repr([connection.execute(sa.select(table)).all() for table in tables])
    assert stored.hash == hash_token(token)
    assert token not in dump and PASSWORD not in dump
    clock.advance(DAY / 1000)
    assert api.call("GET", "/account", token).status_code == 401


@pytest.mark.req("AUTH-8")
def test_wrong_names_passwords_and_disabled_accounts_are_not_told_apart(api: Api, leyla: str, seed: Seed) -> None:
    disabled = sign_up(api, seed, "disabled")
    with api.database.write() as connection:
        accounts.set_disabled(connection, disabled, 1)
    answers = [
        sign_in(api, "leyla", "wrong password"),
        sign_in(api, "nobody"),
        sign_in(api, "disabled"),
        sign_in(api, ""),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].get_json()["error"]["code"] == "bad_credentials"
    assert audit(api) == [
        ("signin.failed", "account:leyla", "192.0.2.1"),
        ("signin.failed", "unknown", "192.0.2.1"),
        ("signin.failed", "account:disabled", "192.0.2.1"),
        ("signin.failed", "unknown", "192.0.2.1"),
    ]
    assert sign_in(api).status_code == 201
    assert audit(api)[-1] == ("signin.ok", "account:leyla", "192.0.2.1")


@pytest.mark.req("AUTH-8")
def test_an_unknown_name_costs_the_same_work(api: Api, leyla: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    real = PasswordHasher.verify

    def counted(self: PasswordHasher, stored: str, password: str) -> bool:
        verified.append(stored)
        return real(self, stored, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    sign_in(api, "leyla", "wrong password")
    sign_in(api, "nobody", "wrong password")
    parameters = [stored.rsplit("$", 2)[0] for stored in verified]
    assert len(verified) == 2 and parameters[0] == parameters[1]


@pytest.mark.req("AUTH-2")
def test_names_are_found_however_they_were_composed(api: Api, seed: Seed) -> None:
    sign_up(api, seed, "gülşen")
    assert sign_in(api, unicodedata.normalize("NFD", "gülşen")).status_code == 201


@pytest.mark.req("AUTH-2")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"password": "x"}, "identifier"), ({"identifier": "leyla"}, "password"),
        ({"identifier": 1, "password": "x"}, "identifier"), ({"identifier": "x" * 101, "password": "x"}, "identifier"),
        ({"identifier": "leyla", "password": "x" * 1025}, "password"),
        ({"identifier": "ley\0la", "password": "x"}, "identifier"),
        ({"identifier": "\ud800", "password": "x"}, "identifier"),
        ({"identifier": "leyla", "password": "x", "name": "x" * 101}, "name"),
        ({"identifier": "leyla", "password": "x", "name": None}, "name"),
        ({"identifier": "leyla", "password": "x", "scopes": ["all"]}, "scopes"),
    ],
)  # fmt: skip
def test_malformed_sign_ins_are_refused(api: Api, leyla: str, body: Any, field: str) -> None:
    answer = api.call("POST", "/tokens", json=body)
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == field
    assert audit(api) == []


@pytest.mark.req("AUTH-8", "REST-2")
def test_what_anybody_may_send_is_small(api: Api, leyla: str) -> None:
    longest = {"identifier": "é" * 100, "password": "\x01" * 1024, "name": "é" * 100}
    assert api.call("POST", "/tokens", json=longest).status_code == 401
    answer = sign_in(api, padding="x" * 16 * 1024)
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.req("AUTH-8")
def test_attempts_are_limited_by_name(api: Api, leyla: str, seed: Seed) -> None:
    sign_up(api, seed, "başka")
    for number in range(10):
        assert sign_in(api, "leyla", "wrong password", f"192.0.2.{number}").status_code == 401
    refused = sign_in(api, address="192.0.2.200")
    assert refused.status_code == 429
    assert refused.get_json()["error"] == {
        "code": "rate_limited", "message": "Too many requests. Try again later.", "retryable": True
    }  # fmt: skip
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert sign_in(api, "başka", address="192.0.2.200").status_code == 201
    for _ in range(10):  # a name that nobody has is no different
        sign_in(api, "nobody", address="198.51.100.1")
    assert sign_in(api, "nobody", address="198.51.100.1").status_code == 429


@pytest.mark.req("AUTH-8")
def test_attempts_are_limited_by_address(api: Api, leyla: str) -> None:
    for number in range(30):
        sign_in(api, f"name{number}", address=f"2001:db8::{number:x}")
    assert sign_in(api, address="2001:db8::ffff:1").status_code == 429
    assert sign_in(api, address="2001:db8:0:1::1").status_code == 201


@pytest.mark.req("AUTH-8")
def test_an_old_hash_is_renewed_at_sign_in(api: Api, leyla: str) -> None:
    old = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(PASSWORD)
    with api.database.write() as connection:
        accounts.set_password(connection, 0, leyla, old)
    assert sign_in(api).status_code == 201
    with api.database.read() as connection:
        renewed = connection.execute(sa.select(schema.accounts.c.password_hash)).scalar_one()
    assert renewed != old and "t=1" in renewed
    assert sign_in(api).status_code == 201


@pytest.mark.req("AUTH-8")
def test_a_sign_in_flood_waits_its_turn_and_is_told_so(api: Api, leyla: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mingora_api.domain.passwords.PATIENCE_SECONDS", 0.01)
    with api.passwords._place(), api.passwords._place():
        answer = sign_in(api)
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
    assert sign_in(api).status_code == 201


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_tokens_are_listed_newest_first_nodes_included(
    api: Api, seed: Seed, account: str, clock: FakeClock, token: str
) -> None:
    clock.advance(10)
    seed.work_token(account, "node_12345678")
    seed.work_token(account, "node_12345678", seed.lease(account, "node_12345678", seed.job(account)))
    seed.token(seed.account("veli"))
    seed.revoke(seed.token(account))
    listed = api.call("GET", "/tokens", token).get_json()["tokens"]
    for entry in listed:
        assert entry.pop("id").startswith("tok_")
    assert listed == [
        {
            "kind": "node", "name": "test", "scopes": ["research:work"], "createdAt": "2027-01-15T08:00:10.000Z",
            "lastUsedAt": None, "expiresAt": "2027-02-14T08:00:10.000Z", "current": False, "nodeId": "node_12345678",
        },
        {
            "kind": "user", "name": "test", "scopes": ["research:read", "research:work", "research:write"],
            "createdAt": "2027-01-15T08:00:00.000Z", "lastUsedAt": None, "expiresAt": "2027-01-16T08:00:00.000Z",
            "current": True,
        },
    ]  # fmt: skip
    clock.advance(DAY / 1000 - 20)
    assert len(api.call("GET", "/tokens", token).get_json()["tokens"]) == 2


@pytest.mark.req("AUTH-4")
def test_use_is_noted_at_most_once_a_minute(api: Api, token: str, clock: FakeClock) -> None:
    def last_used() -> str:
        return str(api.call("GET", "/tokens", token).get_json()["tokens"][0]["lastUsedAt"])

    last_used()
    assert last_used() == "2027-01-15T08:00:00.000Z"
    clock.advance(59)
    last_used()
    assert last_used() == "2027-01-15T08:00:00.000Z"
    clock.advance(1)
    last_used()
    assert last_used() == "2027-01-15T08:01:00.000Z"


@pytest.mark.req("AUTH-4")
def test_a_token_is_revoked_at_once_and_again_without_harm(api: Api, seed: Seed, account: str, token: str) -> None:
    other = seed.token(account)
    by_id = {hash_token(value): value for value in (token, other)}
    with api.database.read() as connection:
        ids = {by_id[row.hash]: row.id for row in connection.execute(sa.select(schema.tokens))}
    for _ in range(2):
        assert api.call("DELETE", f"/tokens/{ids[other]}", token).status_code == 204
    assert api.call("GET", "/account", other).status_code == 401
    assert api.call("DELETE", "/tokens/current", token).status_code == 204
    assert api.call("GET", "/account", token).status_code == 401
    assert [action for action, _, _ in audit(api)] == ["token.revoke", "token.revoke"]


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_a_node_token_is_revoked_on_every_service_with_its_leases(
    api: Api, seed: Seed, account: str, token: str, clock: FakeClock
) -> None:
    node = seed.work_token(account, "node_12345678")
    lease = seed.work_token(account, "node_12345678", seed.lease(account, "node_12345678", seed.job(account)))
    untouched = seed.work_token(account, "node_87654321")
    reader = TokenReader(api.database, clock)
    tokens = api.call("GET", "/tokens", token).get_json()["tokens"]
    token_id = next(entry["id"] for entry in tokens if entry.get("nodeId") == "node_12345678")
    for _ in range(2):
        assert api.call("DELETE", f"/tokens/{token_id}", token).status_code == 204
    for dead in (node, lease):
        with pytest.raises(ServiceError):
            reader.verify(bearer(dead)["Authorization"])
    assert reader.verify(bearer(untouched)["Authorization"]).node_id == "node_87654321"
    left = api.call("GET", "/tokens", token).get_json()["tokens"]
    assert [entry.get("nodeId") for entry in left if entry["kind"] == "node"] == ["node_87654321"]


@pytest.mark.req("AUTH-4")
def test_long_expired_tokens_are_dropped_at_the_next_sign_in(api: Api, leyla: str, clock: FakeClock) -> None:
    sign_in(api)
    clock.advance(31 * DAY / 1000 - 1)
    sign_in(api)
    with api.database.read() as connection:
        assert len(connection.execute(sa.select(schema.tokens)).all()) == 2
    clock.advance(1)
    sign_in(api)
    with api.database.read() as connection:
        assert len(connection.execute(sa.select(schema.tokens)).all()) == 2


@pytest.mark.req("AUTH-4")
def test_a_call_succeeds_though_its_use_cannot_be_noted(api: Api, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OperationalError("UPDATE", None, Exception("locked"))

    monkeypatch.setattr("mingora_api.store.tokens.note_use", broken)
    assert api.call("GET", "/account", token).status_code == 200
