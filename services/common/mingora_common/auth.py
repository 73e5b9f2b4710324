"""Tokens: how they are made, what is stored of them, and how every service verifies one.

A service verifies by reading the ``live_token`` view, so revoking works at once and no service calls another for it.
Only a SHA-256 is stored: a token is 256 random bits, so a slow hash would add nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.views import live_token
from mingora_common.errors import INSUFFICIENT_SCOPE, INVALID_TOKEN, ServiceError

READ, WRITE, WORK = "research:read", "research:write", "research:work"
SCOPES = (READ, WRITE, WORK)
USER, NODE, LEASE = "user", "node", "lease"

_PREFIXES = {USER: "mgu_", NODE: "mgn_", LEASE: "mgl_"}
_TOKEN = re.compile(r"mg[unl]_[A-Za-z0-9_-]{43}")
# Every request runs it: built once, it costs half.
_BY_HASH = sa.select(live_token).where(live_token.c.hash == sa.bindparam("hash"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an account may hold at most; sizes in bytes."""

    max_file_bytes: int
    max_bytes: int
    max_files: int
    max_jobs: int
    max_nodes: int


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: an account by a user token, or one of its nodes or leases."""

    kind: str
    token_id: str
    account_id: str
    account_name: str
    tenant_id: str
    tenant_name: str
    scopes: frozenset[str]
    expires_at: int
    last_used_at: int | None
    limits: Limits
    node_id: str | None = None
    lease_id: str | None = None
    job_id: str | None = None

    def require(self, scope: str, kinds: tuple[str, ...] = (USER,)) -> None:
        """Raise unless this token is of one of ``kinds`` and carries ``scope``.

        A node's or a lease's token has one scope, for work: for its kind that stands for whatever the call needs.
        """
        if self.kind not in kinds:
            raise ServiceError(INVALID_TOKEN, "This call needs a token of another kind.")
        scope = scope if self.kind == USER else WORK
        if scope not in self.scopes:
            raise ServiceError(INSUFFICIENT_SCOPE, required=scope)


def new_token(kind: str) -> tuple[str, str]:
    """A fresh token of ``kind`` and the hash to store: ``(token, hash)``. The token is shown once."""
    token = _PREFIXES[kind] + secrets.token_urlsafe(32)
    return token, hash_token(token)


def hash_token(token: str) -> str:
    """What is stored of a token: 64 hex characters."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenReader:
    """Verifies bearer tokens against ``live_token``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def verify(self, authorization: str | None) -> Principal:
        """The caller named by an ``Authorization`` header; raises ``invalid_token``."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or _TOKEN.fullmatch(token) is None:
            raise ServiceError(INVALID_TOKEN)
        with self._database.read() as connection:
            row = connection.execute(_BY_HASH, {"hash": hash_token(token)}).first()
        if row is None or row.expires_at <= self._clock.now():
            raise ServiceError(INVALID_TOKEN)
        return Principal(
            kind=row.kind,
            token_id=row.token_id,
            account_id=row.account_id,
            account_name=row.account_name,
            tenant_id=row.tenant_id,
            tenant_name=row.tenant_name,
            scopes=frozenset(row.scopes.split()),
            expires_at=row.expires_at,
            last_used_at=row.last_used_at,
            limits=Limits(row.max_file_bytes, row.max_bytes, row.max_files, row.max_jobs, row.max_nodes),
            node_id=row.node_id,
            lease_id=row.lease_id,
            job_id=row.job_id,
        )
