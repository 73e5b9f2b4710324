"""A service's OpenAPI 3.1 document, made from its routes.

What a route is for, takes and answers is said where the route is (:func:`describe`); who may call it comes from
``http.needs``, its path from the route table, statuses and texts of refusals from the error catalogue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from flask import Blueprint, Flask, Response, current_app, jsonify

from mingora_common import __version__, errors
from mingora_common.auth import LEASE, NODE, USER
from mingora_common.errors import CATALOGUE, ErrorKind
from mingora_common.schemas import FLAG, TEXT, Schema, identifier, record

F = TypeVar("F", bound=Callable[..., Any])

JSON, OCTETS, PLAIN = "application/json", "application/octet-stream", "text/plain"
ATTRIBUTE = "mingora_operation"
SCHEMES = {USER: "userToken", NODE: "nodeToken", LEASE: "leaseToken"}
INTERNAL_KEY, METRICS_KEY = "internalKey", "metricsKey"
_OF_SCHEME = {
    USER: "A person's token, from POST /tokens: 24 hours, the three scopes.",
    NODE: "A worker's own token, from POST /nodes.",
    LEASE: "The token of one attempt's rank, from a claim.",
}
_PREFIXES = {"job_id": "job", "node_id": "node", "object_id": "obj"}
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_REQUEST_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{8,64}$"}
_WHOLE: Schema = {"type": "string", "pattern": "^[0-9]+$"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that isn't a refusal: its body (None: there is none), of which type, and headers of its own."""

    schema: Schema | None
    media: str = JSON
    headers: Mapping[str, Schema] = field(default_factory=dict)
    says: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route does, by :func:`describe`."""

    summary: str
    answers: Mapping[int, Answer]
    body: Schema | None
    body_media: str
    body_needed: bool
    errors: tuple[ErrorKind, ...]
    query: Mapping[str, Schema]
    headers: Mapping[str, Schema]
    needed: frozenset[str]
    path: Mapping[str, Schema]
    key: str | None


def describe(
    summary: str,
    answers: Mapping[int, Answer | Schema | None],
    *,
    body: Schema | None = None,
    body_media: str = JSON,
    body_needed: bool = True,
    errors: Sequence[ErrorKind] = (),
    query: Mapping[str, Schema] | None = None,
    headers: Mapping[str, Schema] | None = None,
    needed: Iterable[str] = (),
    path: Mapping[str, Schema] | None = None,
    key: str | None = None,
) -> Callable[[F], F]:
    """Say of a view what it does.

    Args:
        answers: by status; a schema stands for a JSON body of it.
        errors: refusals beyond those that follow from the rest (tokens, bodies, parameters, ids in the path).
        query, headers: parameters by name; ``needed`` names those that must be there.
        path: parameters of the path that aren't ids by their name.
        key: the security scheme of a route that takes a key instead of a token.
    """
    operation = Operation(
        summary=summary,
        answers={
            status: answer if isinstance(answer, Answer) else Answer(answer) for status, answer in answers.items()
        },
        body=body,
        body_media=body_media,
        body_needed=body_needed,
        errors=tuple(errors),
        query=query or {},
        headers=headers or {},
        needed=frozenset(needed),
        path=path or {},
        key=key,
    )

    def mark(view: F) -> F:
        setattr(view, ATTRIBUTE, operation)
        return view

    return mark


def blueprint(service: str) -> Blueprint:
    """The route of the document: open, for it says nothing that the source doesn't."""
    routes = Blueprint("openapi", __name__)

    @routes.get(f"/openapi/{service}.json")
    @describe("This document.", {200: {"type": "object"}})
    def show_document() -> Response:
        return jsonify(document(current_app, service))

    return routes


def document(app: Flask, service: str) -> dict[str, Any]:
    """The OpenAPI document of ``service``; a route that doesn't describe itself is a fault in the code."""
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for rule, method, view in routes(app):
        path = _PARAMETER.sub(r"{\1}", rule)
        paths[path][method.lower()] = _operation(service, rule, method, view)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Mingora: {service}",
            "version": __version__,
            "license": {"name": "Apache-2.0"},
            "description": "docs/protocol.md says more. Whole numbers are written without a fraction.",
        },
        "servers": [{"url": "/"}],
        "paths": {path: dict(sorted(paths[path].items())) for path in sorted(paths)},
        "components": {"schemas": {"Error": _error_schema()}, "securitySchemes": _schemes()},
    }


def routes(app: Flask) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Every rule, method and view of an app."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        for method in sorted((rule.methods or set()) - {"OPTIONS"}):
            if method != "HEAD" or OCTETS in {answer.media for answer in operation_of(view).answers.values()}:
                yield rule.rule, method, view


def operation_of(view: Callable[..., Any]) -> Operation:
    """What a view says of itself; raises ``LookupError`` when it says nothing."""
    operation = getattr(view, ATTRIBUTE, None)
    if operation is None:
        raise LookupError(f"{view.__module__}.{view.__qualname__} doesn't describe itself")
    return cast(Operation, operation)


def refusals(rule: str, view: Callable[..., Any]) -> list[ErrorKind]:
    """Every refusal that a route can answer with, in the order of the catalogue."""
    operation = operation_of(view)
    found = set(operation.errors)
    scope = getattr(view, "mingora_scope", None)
    if scope is not None:
        found |= {errors.INVALID_TOKEN, errors.INTERNAL, errors.UNAVAILABLE}
        if USER in view.mingora_kinds:  # type: ignore[attr-defined]
            found.add(errors.INSUFFICIENT_SCOPE)
    if operation.key is not None:
        found |= {errors.NOT_FOUND, errors.INTERNAL, errors.UNAVAILABLE}
    if _PARAMETER.search(rule):
        found.add(errors.NOT_FOUND)
    if operation.body is not None or operation.query or operation.needed:
        found.add(errors.INVALID_REQUEST)
    if operation.body is not None:
        found |= {errors.BODY_TOO_LARGE, errors.INTERNAL, errors.UNAVAILABLE}
        if operation.body_needed:
            found.add(errors.LENGTH_REQUIRED)
    return [kind for kind in CATALOGUE if kind in found]


def _operation(service: str, rule: str, method: str, view: Callable[..., Any]) -> dict[str, Any]:
    operation = operation_of(view)
    answers = {str(status): _answer(answer, method) for status, answer in operation.answers.items()}
    by_status: dict[int, list[ErrorKind]] = defaultdict(list)
    for kind in refusals(rule, view):
        by_status[kind.status].append(kind)
    for status, kinds in sorted(by_status.items()):
        answers.setdefault(str(status), _refusal(kinds, method))
    name = re.sub(r"\W+", "_", _PARAMETER.sub("", rule).rpartition("/v1")[2]).strip("_")
    found: dict[str, Any] = {
        "operationId": f"{service}.{view.__name__}" if method != "HEAD" else f"{service}.{view.__name__}.head",
        "summary": operation.summary,
        "tags": [service if not name else name.partition("_")[0]],
        "parameters": _parameters(rule, operation),
        "responses": answers,
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": operation.body_needed,
            "content": {operation.body_media: {"schema": operation.body}},
        }
    security = _security(view, operation)
    return {**found, "security": security} if security else found


def _parameters(rule: str, operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name in _PARAMETER.findall(rule):
        schema = operation.path.get(name) or identifier(_PREFIXES[name])
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    for where, schemas in (("query", operation.query), ("header", operation.headers)):
        for name, schema in schemas.items():
            found.append({"name": name, "in": where, "required": name in operation.needed, "schema": schema})
    return found


def _security(view: Callable[..., Any], operation: Operation) -> list[dict[str, list[str]]]:
    if operation.key is not None:
        return [{operation.key: []}]
    kinds: Sequence[str] = getattr(view, "mingora_kinds", ())
    # OpenAPI 3.1 lets a scheme that isn't OAuth2 name what role is needed. Only a user's token is made with choice.
    return [{SCHEMES[kind]: [view.mingora_scope] if kind == USER else []} for kind in kinds]  # type: ignore[attr-defined]


def _answer(answer: Answer, method: str) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.says or "Done.", "headers": _headers(answer.headers)}
    if answer.schema is not None and method != "HEAD":
        found["content"] = {answer.media: {"schema": answer.schema}}
    return found


def _refusal(kinds: Sequence[ErrorKind], method: str) -> dict[str, Any]:
    codes = {"type": "object", "properties": {"code": {"enum": [kind.code for kind in kinds]}}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Error"}, {"type": "object", "properties": {"error": codes}}]}
    again: Mapping[str, Schema] = {"Retry-After": _WHOLE} if any(kind.retryable for kind in kinds) else {}
    return {
        "description": " ".join(f"`{kind.code}`: {kind.message}" for kind in kinds),
        "headers": _headers(again),
        **({"content": {JSON: {"schema": schema}}} if method != "HEAD" else {}),
    }


def _headers(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {name: {"schema": schema} for name, schema in {"X-Request-Id": _REQUEST_ID, **schemas}.items()}


def _error_schema() -> Schema:
    known = {"type": "string", "enum": [kind.code for kind in CATALOGUE]}
    error = record({"code": known, "message": TEXT, "retryable": FLAG})
    return record({"error": {**error, "additionalProperties": True}})


def _schemes() -> dict[str, Any]:
    tokens = {
        SCHEMES[kind]: {"type": "http", "scheme": "bearer", "description": text} for kind, text in _OF_SCHEME.items()
    }
    return {
        **tokens,
        INTERNAL_KEY: {"type": "apiKey", "in": "header", "name": "X-Internal-Key"},
        METRICS_KEY: {"type": "http", "scheme": "bearer", "description": "MINGORA_METRICS_KEY."},
    }
