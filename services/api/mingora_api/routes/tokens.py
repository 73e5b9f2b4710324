"""``/tokens``: a password is exchanged for a token; tokens are listed and revoked."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Blueprint, Response, jsonify

from mingora_api.domain.names import MAX_NAME_CHARACTERS, MAX_PASSWORD_BYTES, normal
from mingora_api.routes import schemas
from mingora_api.routes.context import actor, address, context
from mingora_api.store import accounts, audit, tokens
from mingora_api.store.audit import Actor
from mingora_common.auth import NODE, READ, SCOPES, USER, WRITE, new_token
from mingora_common.clock import rfc3339, rfc3339_or_none
from mingora_common.errors import BAD_CREDENTIALS, INVALID_REQUEST, NOT_FOUND, RATE_LIMITED, ServiceError
from mingora_common.http import json_body, needs, no_content, principal
from mingora_common.ids import is_id
from mingora_common.openapi import describe

_CURRENT = "current"
# Its three texts at their longest, with every character escaped.
MAX_SIGN_IN_BYTES = 16 * 1024

blueprint = Blueprint("tokens", __name__)


@blueprint.post("/tokens")
@describe(
    "Exchange a password for a token.",
    {201: schemas.SIGNED_IN},
    body=schemas.SIGN_IN,
    errors=(BAD_CREDENTIALS, RATE_LIMITED),
)
def sign_in() -> Response:
    """No token needed: this is where one comes from."""
    body = json_body(("identifier", "password", "name"), maximum=MAX_SIGN_IN_BYTES)
    name = normal(_text(body, "identifier", MAX_NAME_CHARACTERS))
    password = _text(body, "password", MAX_PASSWORD_BYTES)
    machine = _text(body, "name", MAX_NAME_CHARACTERS) if "name" in body else ""
    context().sign_ins.count(name, address())
    account = _verified(name, password)
    token, hashed = new_token(USER)
    now = context().clock.now()
    with context().database.write() as connection:
        accounts.lock(connection, account.id)
        current = accounts.find_account(connection, name)
        if current is None or current.disabled_at is not None or current.password_hash != account.password_hash:
            raise ServiceError(BAD_CREDENTIALS)
        token_id = tokens.create(connection, now, account_id=account.id, hashed=hashed, name=machine)
        who = Actor(f"account:{name}", account.id, address())
        audit.record(connection, now, who, "signin.ok", token_id)
    _renew_hash(account, password)
    response = jsonify(
        token=token,
        id=token_id,
        name=machine,
        scopes=list(SCOPES),
        createdAt=rfc3339(now),
        expiresAt=rfc3339(now + tokens.LIFETIME),
        ttlSeconds=tokens.LIFETIME // 1000,
        account={"id": account.id, "name": account.name, "tenant": account.tenant_name},
    )
    response.status_code = 201
    return response


@blueprint.get("/tokens")
@needs(READ)
@describe("The account's live tokens, its nodes' included.", {200: schemas.TOKENS})
def list_tokens() -> Response:
    with context().database.read() as connection:
        rows = tokens.live(connection, context().clock.now(), principal().account_id)
    return jsonify(tokens=[_render(row) for row in rows])


@blueprint.delete("/tokens/<token_id>")
@needs(WRITE)
@describe("Revoke a token; `current` is the caller's.", {204: None}, path={"token_id": schemas.TOKEN_ID})
def revoke_token(token_id: str) -> Response:
    """``current`` is the token of this call."""
    caller, now = principal(), context().clock.now()
    token_id = caller.token_id if token_id == _CURRENT else token_id
    if not is_id("tok", token_id):
        raise ServiceError(NOT_FOUND)
    with context().database.write() as connection:
        revoked = tokens.revoke(connection, now, token_id, caller.account_id)
        if revoked is None:
            raise ServiceError(NOT_FOUND)
        if revoked:
            audit.record(connection, now, actor(), "token.revoke", token_id)
    return no_content()


def _verified(name: str, password: str) -> sa.Row[Any]:
    with context().database.read() as connection:
        account = accounts.find_account(connection, name)
    matches = context().passwords.verify(account.password_hash if account else None, password)
    if account is not None and matches and account.disabled_at is None:
        return account
    # An unknown name isn't written down: people type passwords into the wrong field.
    who = Actor(f"account:{name}" if account else "unknown", account.id if account else None, address())
    with context().database.write() as connection:
        audit.record(connection, context().clock.now(), who, "signin.failed")
    raise ServiceError(BAD_CREDENTIALS)


def _renew_hash(account: sa.Row[Any], password: str) -> None:
    passwords = context().passwords
    if passwords.outdated(account.password_hash):
        renewed = passwords.hash(password)
        with context().database.write() as connection:
            accounts.rehash(connection, account.id, account.password_hash, renewed)


def _text(body: dict[str, Any], field: str, maximum: int) -> str:
    """A text of at most ``maximum`` bytes or characters, without what no database stores."""
    value = body.get(field)
    if not isinstance(value, str) or len(value) > maximum or not _storable(value):
        raise ServiceError(INVALID_REQUEST, f"{field} must be text of at most {maximum} characters.", field=field)
    return value


def _storable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _render(row: sa.Row[Any]) -> dict[str, Any]:
    token = {
        "id": row.token_id,
        "kind": row.kind,
        "name": row.name,
        "scopes": sorted(row.scopes.split()),
        "createdAt": rfc3339(row.created_at),
        "lastUsedAt": rfc3339_or_none(row.last_used_at),
        "expiresAt": rfc3339(row.expires_at),
        "current": row.token_id == principal().token_id,
    }
    return {**token, "nodeId": row.node_id} if row.kind == NODE else token
