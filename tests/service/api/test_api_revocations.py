"""Revocations of node tokens don't pile up, and none is forgotten that still holds a token down."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from service.api.api_harness import Api
from support import FakeClock, Seed

from mingora_common.auth import hash_token
from mingora_common.clock import DAY
from mingora_common.db import schema


def revoked(seed: Seed) -> set[str]:
    with seed.engine.begin() as connection:
        return set(connection.execute(sa.select(schema.token_revocations.c.token_id)).scalars())


def token_id(seed: Seed, token: str) -> str:
    with seed.engine.begin() as connection:
        query = sa.select(schema.work_tokens.c.id).where(schema.work_tokens.c.hash == hash_token(token))
        return str(connection.execute(query).scalar_one())


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_a_revocation_goes_once_its_token_is_dead_without_it(api: Api, seed: Seed, clock: FakeClock) -> None:
    account = seed.account("ali")
    with seed.engine.begin() as connection:
        password = api.passwords.hash("long enough")
        connection.execute(sa.update(schema.accounts).values(password_hash=password))
    ends, goes_on, ended_by_scheduler = (
        seed.work_token(account, f"node_1234567{number}", ttl=days * DAY)
        for number, days in ((1, 5), (2, 400), (3, 400))
    )
    ids = {name: token_id(seed, token) for name, token in
           (("ends", ends), ("goes on", goes_on), ("ended", ended_by_scheduler))}  # fmt: skip
    user = seed.token(account)
    for each in ids.values():
        assert api.call("DELETE", f"/tokens/{each}", user).status_code == 204
    seed.revoke(ended_by_scheduler)

    def sign_in() -> None:
        answer = api.call("POST", "/tokens", json={"identifier": "ali", "password": "long enough"})
        assert answer.status_code == 201, answer.text

    sign_in()
    assert revoked(seed) == set(ids.values())
    clock.advance(31 * DAY / 1000)
    sign_in()
    assert revoked(seed) == {ids["goes on"]}
    for token in (ends, goes_on, ended_by_scheduler):
        assert api.call("GET", "/account", token).status_code == 401
    clock.advance(400 * DAY / 1000)
    sign_in()
    assert revoked(seed) == set()
