"""The OpenAPI documents say what the routes are, and docs/openapi is what the routes say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator

from devtools import openapi
from mingora_common.auth import USER
from mingora_common.errors import CATALOGUE
from mingora_common.openapi import SCHEMES, document
from mingora_stack.router import service_of

SERVICES = ["api", "blobstore", "scheduler"]
METHODS = {kind.code: kind.status for kind in CATALOGUE}


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Flask]:
    return openapi.apps(tmp_path_factory.mktemp("content"))


def operations(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("service", SERVICES)
def test_every_route_is_in_the_document_and_nothing_else(apps: Mapping[str, Flask], service: str) -> None:
    routes = set()
    for rule in apps[service].url_map.iter_rules():
        for method in (rule.methods or set()) - {"OPTIONS", "HEAD"}:
            routes.add((method, re.sub(r"<(\w+)>", r"{\1}", rule.rule)))
    said = {(method, path) for method, path, _ in operations(document(apps[service], service))}
    assert {each for each in said if each[0] != "HEAD"} == routes
    assert {path for method, path in said if method == "HEAD"} <= {path for method, path in said if method == "GET"}


@pytest.mark.req("OPS-3", "REST-3")
@pytest.mark.parametrize("service", SERVICES)
def test_who_may_call_is_what_the_guard_asks_for(apps: Mapping[str, Flask], service: str) -> None:
    guarded = 0
    found = document(apps[service], service)
    for rule in apps[service].url_map.iter_rules():
        view: Any = apps[service].view_functions[rule.endpoint]
        for method in (rule.methods or set()) - {"OPTIONS", "HEAD"}:
            operation = found["paths"][re.sub(r"<(\w+)>", r"{\1}", rule.rule)][method.lower()]
            kinds = getattr(view, "mingora_kinds", None)
            if kinds is None:
                assert not set(SCHEMES.values()) & {name for each in operation.get("security", []) for name in each}
                continue
            guarded += 1
            wanted = [{SCHEMES[kind]: [view.mingora_scope] if kind == USER else []} for kind in kinds]
            assert operation["security"] == wanted
            assert {"401", "500", "503"} <= set(operation["responses"])
    assert guarded >= 8


@pytest.mark.req("OPS-3", "REST-2")
@pytest.mark.parametrize("service", SERVICES)
def test_refusals_are_the_catalogues(apps: Mapping[str, Flask], service: str) -> None:
    said = []
    for _, _, operation in operations(document(apps[service], service)):
        for status, answer in operation["responses"].items():
            schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
            if "allOf" in schema:
                codes = schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]
                said += [(int(status), METHODS[code]) for code in codes]
    assert len(said) > 50
    assert [pair for pair in said if pair[0] != pair[1]] == []


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("service", SERVICES)
def test_schemas_are_schemas_and_names_are_unique(apps: Mapping[str, Flask], service: str) -> None:
    found = document(apps[service], service)
    names = [operation["operationId"] for _, _, operation in operations(found)]
    assert len(names) == len(set(names))

    def schemas(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            if isinstance(value.get("schema"), dict):
                yield value["schema"]
            for each in value.values():
                yield from schemas(each)
        elif isinstance(value, list):
            for each in value:
                yield from schemas(each)

    checked = [Draft202012Validator.check_schema(schema) for schema in schemas(found["paths"])]
    assert len(checked) > 50


@pytest.mark.req("OPS-3", "DOC-1")
def test_the_repositorys_documents_are_the_routes_own() -> None:
    stored = {path.stem: path.read_text(encoding="utf-8") for path in openapi.FOLDER.glob("*.json")}
    assert stored == openapi.texts(), "run python3 dev.py check --fix"


@pytest.mark.req("OPS-3")
@pytest.mark.parametrize("service", SERVICES)
def test_each_document_is_served_where_the_router_looks(apps: Mapping[str, Flask], service: str) -> None:
    path = f"/api/research/v1/openapi/{service}.json"
    assert service_of(path) == service
    answer = apps[service].test_client().get(path)
    assert (answer.status_code, answer.get_json()) == (200, document(apps[service], service))
    assert Path(path).name in {each.name for each in openapi.FOLDER.glob("*.json")}
