"""What schemathesis makes of the OpenAPI documents, against the whole platform behind its router, on both engines.

Nothing it sends may be a fault of ours, or be answered with a status, a body or a header that the document doesn't
state; what the document allows must be taken, what it forbids refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from argon2 import PasswordHasher
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scheduler_platform import Platform, Worker, make_platform
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks
from schemathesis.specs.openapi.schemas import OpenApiSchema
from support import FakeClock, RecordedHints, RecordedPins, Seed

import mingora_api.app
import mingora_blobstore.app
from mingora_api.config import Config as ApiConfig
from mingora_api.domain.passwords import Passwords
from mingora_blobstore.config import Config as BlobstoreConfig
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common.config import FrameConfig
from mingora_common.db.engine import Database
from mingora_common.wake import Waiters
from mingora_stack.router import Router

DOCUMENTS = Path(__file__).parents[3] / "docs" / "openapi"
INTERNAL_KEY, METRICS_KEY = "internal-key-0123456789-abcdefgh", "metrics-key-0123456789-abcdefghij"
# What takes the time is making cases; tests/service/stack/test_stack_nasty_input.py sends far more, without schemas.
EXAMPLES = {GenerationMode.POSITIVE: 8, GenerationMode.NEGATIVE: 4}
# A well-formed request may still be refused for what the platform holds, which no schema knows.
REFUSED_BY_STATE = {401, 404, 409, 413, 416, 422, 429}
# Refusals that schemathesis doesn't take for such.
TOO_LONG = (411, 413)
# Their bodies must have the size of what was opened, the digest of the inputs, the length of the log.
MEASURED = ("/parts/{index}", "/ready", "/logs")
# The embedded stack answers these for all services at once.
FOR_ALL = ("/healthz", "/readyz", "/metrics")


@dataclass
class Target:
    """The platform behind its router, with somebody at work in it."""

    scheduler: Platform
    router: Router
    node: Worker
    idle: Worker
    job_id: str
    object_id: str

    def headers(self, operation: Mapping[str, Any], path: str) -> dict[str, str]:
        """What opens an operation: the first security scheme that it names."""
        scheme = next(iter((operation.get("security") or [{"none": []}])[0]))
        idle = path.endswith(("/claim", "/pause"))
        return {
            "none": {},
            "userToken": {"Authorization": f"Bearer {self.scheduler.user}"},
            "nodeToken": {"Authorization": f"Bearer {(self.idle if idle else self.node).token}"},
            "leaseToken": {"Authorization": f"Bearer {self.node.lease['token']}"},
            "internalKey": {"X-Internal-Key": INTERNAL_KEY},
            "metricsKey": {"Authorization": f"Bearer {METRICS_KEY}"},
        }[scheme]

    def ids(self, path: str, method: str) -> dict[str, Any]:
        """Parameters of a path that name what is there."""
        node = self.idle if path.endswith(("/claim", "/pause")) or method == "delete" else self.node
        known = {"job_id": self.job_id, "object_id": self.object_id, "node_id": node.id, "token_id": "tok_0123456789",
                 "owner": "job_0123456789", "index": 0}  # fmt: skip
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}


@pytest.fixture
def target(database_url: str, seed: Seed, clock: FakeClock, tmp_path: Path) -> Iterator[Target]:
    waiters, hints, frame = Waiters(0), RecordedHints(), FrameConfig(METRICS_KEY)  # nobody can wait
    scheduler = make_platform(database_url, seed, clock, hints, waiters)
    databases = [Database(database_url, role) for role in ("api", "blobstore")]
    content = SqliteContent(str(tmp_path / "content.sqlite"))
    api = mingora_api.app.create_app(
        ApiConfig(database_url, "unix:///nonexistent", INTERNAL_KEY, "http://127.0.0.1:1", frame=frame),
        database=databases[0], clock=clock, hints=hints, pins=RecordedPins(), waker=scheduler.waker, waiters=waiters,
        passwords=Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)),
    )  # fmt: skip
    blobstore = mingora_blobstore.app.create_app(
        BlobstoreConfig(database_url, str(tmp_path / "content.sqlite"), INTERNAL_KEY, frame),
        database=databases[1], content=content, clock=clock,
    )  # fmt: skip
    node, idle = scheduler.worker(), scheduler.worker(2)
    job_id = seed.job(scheduler.account)
    scheduler.waiting(node)
    node.run()
    user = {"Authorization": f"Bearer {scheduler.user}"}
    wanted = {"size": 3, "sha256": "a" * 64, "kind": "input"}
    opened = blobstore.test_client().post("/api/research/v1/objects", json=wanted, headers=user)
    apps = {"api": api, "blobstore": blobstore, "scheduler": scheduler.app}
    yield Target(scheduler, Router(apps), node, idle, job_id, str(opened.get_json()["id"]))
    content.close()
    for database in (*databases, scheduler.database):
        database.close()


def operations() -> list[tuple[str, str, str, GenerationMode]]:
    """Every operation, with what fits the document and, where it takes anything, with what doesn't."""
    found = []
    for service in ("api", "blobstore", "scheduler"):
        paths = json.loads((DOCUMENTS / f"{service}.json").read_text(encoding="utf-8"))["paths"]
        for path, methods in paths.items():
            for method, operation in methods.items():
                takes = operation["parameters"] or "requestBody" in operation
                modes = EXAMPLES if takes else (GenerationMode.POSITIVE,)
                if path not in FOR_ALL and method != "head":
                    found += [(service, path, method, mode) for mode in modes]
    return found


def loaded(service: str, mode: GenerationMode) -> OpenApiSchema:
    document = json.loads((DOCUMENTS / f"{service}.json").read_text(encoding="utf-8"))
    return schemathesis.openapi.from_dict(small(document) if mode is GenerationMode.POSITIVE else document)


def small(schema: Any) -> Any:
    """The same with lists and texts of a few members: all that fits it fits the document, and is made much faster."""
    if isinstance(schema, list):
        return [small(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "responses" in schema:
        return {**schema, **{name: small(schema[name]) for name in ("parameters", "requestBody") if name in schema}}
    most = {"maxItems": 3, "maxProperties": 2, "maxLength": 40}
    capped = {name: min(schema[name], most[name]) for name in most if isinstance(schema.get(name), int)}
    if schema.get("type") == "array":
        capped.setdefault("maxItems", most["maxItems"])
    return {**{name: small(value) for name, value in schema.items()}, **capped}


def whole(value: Any) -> Any:
    """JSON Schema takes 1.0 for a whole number; the services want it written as one."""
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def mend(case: Case[Any]) -> None:
    """Make what no schema can state true: cursors come from answers, and `tail` stands alone."""
    case.body = whole(case.body)
    if isinstance(case.query, dict):
        case.query.pop("before", None)
        if "offset" in case.query:
            case.query.pop("tail", None)


def strategy(
    target: Target, service: str, path: str, method: str, mode: GenerationMode
) -> st.SearchStrategy[Case[Any]]:
    schema = loaded(service, mode)
    schema.app = target.router
    operation = schema[path][method.upper()]
    known = operation.as_strategy(generation_mode=mode, path_parameters=target.ids(path, method) or None)
    return known if mode is GenerationMode.POSITIVE else known | operation.as_strategy(generation_mode=mode)


@pytest.mark.req("OPS-3", "REST-2")
@pytest.mark.parametrize(("service", "path", "method", "mode"), operations(), ids=str)
def test_every_answer_is_in_the_document(
    target: Target, service: str, path: str, method: str, mode: GenerationMode
) -> None:
    cases = strategy(target, service, path, method, mode)
    refusable = mode is GenerationMode.NEGATIVE

    @settings(
        max_examples=EXAMPLES[mode], derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate,),
    )  # fmt: skip
    @given(case=cases)
    def holds(case: Case[Any]) -> None:
        if not refusable:
            mend(case)
        answer = case.call(headers=target.headers(case.operation.definition.raw, path))
        case.validate_response(
            answer,
            checks=[
                schemathesis.checks.not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
                checks.response_headers_conformance,
                *([checks.negative_data_rejection] if refusable and answer.status_code not in TOO_LONG else []),
            ],
        )
        refused = REFUSED_BY_STATE | ({400, 411} if path.endswith(MEASURED) else set())
        assert refusable or answer.status_code < 400 or answer.status_code in refused, answer.text

    holds()
