"""Policy, account and the health checks."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from service.api.api_harness import SPEC, Api
from sqlalchemy.exc import OperationalError
from support import Seed


@pytest.mark.req("JOB-1", "BLOB-7")
def test_the_policy_states_the_accounts_own_limits(api: Api, seed: Seed) -> None:
    token = seed.token(seed.account("veli", max_jobs=5, max_bytes=9))
    policy = api.call("GET", "/policy", token).get_json()
    schema = policy.pop("jobSchema")
    assert policy == {
        "apiVersion": 1, "server": "mingora 0.1.0",
        "limits": {
            "maxFileBytes": 8388608, "maxBytes": 9, "maxFiles": 1000, "maxJobs": 5, "maxNodes": 200,
            "maxLogBytes": 104857600, "maxInputs": 1000, "maxPathBytes": 1024,
        },
        "partSizeBytes": 2097152,
        "intervals": {
            "claimSeconds": 15, "heartbeatSeconds": 15, "leaseTtlSeconds": 60, "jobPollSeconds": 10,
            "barrierPollSeconds": 5, "maxWaitSeconds": 15, "pageRefreshSeconds": 30,
        },
        "features": ["jobs", "logs", "groups"],
        "fees": {"model": "0.00", "currency": "CNY", "usageVerified": False},
    }  # fmt: skip
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(SPEC)


@pytest.mark.req("AUTH-6")
def test_the_account_is_the_tokens_own(api: Api, token: str, account: str) -> None:
    shown = api.call("GET", "/account", token).get_json()
    assert shown.pop("token")["kind"] == "user"
    assert shown == {"id": account, "name": "ali", "tenant": "tenant-of-ali"}


@pytest.mark.req("OPS-3")
def test_ready_with_a_database_and_without_redis(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.client.get("/healthz").text == "ok"
    ready = api.client.get("/readyz")
    checks = {"database": "ok", "schema": "ok", "redis": "failed"}
    assert ready.status_code == 200 and ready.get_json() == {"status": "ok", "checks": checks}

    def gone() -> None:
        raise OperationalError("SELECT 1", None, Exception("gone"))

    monkeypatch.setattr(api.database, "ping", gone)
    assert api.client.get("/readyz").status_code == 503
    assert api.client.get("/healthz").status_code == 200
