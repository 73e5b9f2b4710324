"""Every table of the platform and the service that writes it.

``info["owner"]`` names the one writing service; ``engine.py`` refuses writes by any other. The interfaces between the
services are the views (``views.py``): each service reads its own tables and those, nothing else.
Times are integer milliseconds since the epoch (``clock.py``); flags that views compare are integers 0 and 1, which
SQLite and PostgreSQL treat alike.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

API, BLOBSTORE, SCHEDULER = "api", "blobstore", "scheduler"
WHOLE = "whole"  # no service: whoever fills an empty platform from an archive


def _id(name: str = "id", **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(80), nullable=options.pop("nullable", False), **options)


def _time(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _text(name: str, length: int, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=nullable)


def _json(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=nullable)


def _count(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


# --- api -------------------------------------------------------------------------------------------------------------

tenants = sa.Table(
    "tenants",
    metadata,
    _id(primary_key=True),
    sa.Column("name", sa.String(100), nullable=False, unique=True),
    _time("created_at"),
    info={"owner": API},
)

accounts = sa.Table(
    "accounts",
    metadata,
    _id(primary_key=True),
    _id("tenant_id"),
    sa.Column("name", sa.String(100), nullable=False, unique=True),
    _text("password_hash", 255),
    _time("created_at"),
    _time("disabled_at", nullable=True),
    info={"owner": API},
)

account_limits = sa.Table(
    "account_limits",
    metadata,
    _id("account_id", primary_key=True),
    _count("max_file_bytes"),
    _count("max_bytes"),
    _count("max_files"),
    _count("max_jobs"),
    _count("max_nodes"),
    info={"owner": API},
)

tokens = sa.Table(
    "tokens",
    metadata,
    _id(primary_key=True),
    _id("account_id", index=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    _text("name", 100),
    _text("scopes", 200),
    _time("created_at"),
    _time("expires_at"),
    _time("last_used_at", nullable=True),
    _time("revoked_at", nullable=True),
    info={"owner": API},
)

# Revocations of node tokens: those rows are scheduler's, so api states here that one is over, and the view obeys.
token_revocations = sa.Table(
    "token_revocations",
    metadata,
    _id("token_id", primary_key=True),
    _id("account_id"),
    _time("at"),
    info={"owner": API},
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    _time("at"),
    _id("account_id", nullable=True, index=True),
    _text("actor", 200),
    _text("action", 60),
    _text("subject", 200, nullable=True),
    _text("address", 64, nullable=True),
    _json("data", nullable=True),
    info={"owner": API},
)

jobs = sa.Table(
    "jobs",
    metadata,
    _id(primary_key=True),
    _id("account_id"),
    _id("tenant_id"),
    _text("idempotency_key", 200),
    _text("fingerprint", 64),
    _text("name", 100),
    sa.Column("priority", sa.Integer, nullable=False),
    _json("spec"),
    _json("inputs"),
    _time("created_at"),
    sa.UniqueConstraint("account_id", "idempotency_key"),
    sa.Index(None, "account_id", "created_at"),
    info={"owner": API},
)

cancel_requests = sa.Table(
    "cancel_requests", metadata, _id("job_id", primary_key=True), _time("at"), _text("actor", 200), info={"owner": API}
)

# --- blobstore -------------------------------------------------------------------------------------------------------

objects = sa.Table(
    "objects",
    metadata,
    _id(primary_key=True),
    _id("account_id"),
    _text("sha256", 64),
    _count("size"),
    _text("kind", 20),
    _count("part_size"),
    _text("state", 20),
    _text("backend", 20),
    # Which upload of this content: 1, and one more each time a corrupt object is opened anew.
    sa.Column("generation", sa.Integer, nullable=False),
    _time("created_at"),
    _time("touched_at"),
    _time("completed_at", nullable=True),
    sa.UniqueConstraint("account_id", "sha256", "size"),
    sa.Index(None, "state", "touched_at"),
    info={"owner": BLOBSTORE},
)

parts = sa.Table(
    "parts",
    metadata,
    _id("object_id", primary_key=True),
    sa.Column("idx", sa.Integer, primary_key=True, autoincrement=False),
    _count("size"),
    _text("sha256", 64),
    _time("stored_at"),
    info={"owner": BLOBSTORE},
)

pins = sa.Table(
    "pins",
    metadata,
    _id("owner", primary_key=True),
    _id("object_id", primary_key=True, index=True),
    _id("account_id"),
    _time("created_at"),
    info={"owner": BLOBSTORE},
)

blob_usage = sa.Table(
    "blob_usage",
    metadata,
    _id("account_id", primary_key=True),
    _count("bytes"),
    _count("files"),
    info={"owner": BLOBSTORE},
)

# --- scheduler -------------------------------------------------------------------------------------------------------

nodes = sa.Table(
    "nodes",
    metadata,
    _id(primary_key=True),
    _id("account_id"),
    _id("tenant_id"),
    _text("node_key", 128),
    _text("name", 100),
    _text("version", 40),
    _text("platform", 100),
    _text("machine_id", 128),
    sa.Column("cpu", sa.Integer, nullable=False),
    _count("memory_mib"),
    _json("gpu", nullable=True),
    _text("gpu_uuid", 128, nullable=True),
    _json("runtimes"),
    _text("image_digest", 80, nullable=True),
    _text("fingerprint", 80, nullable=True),
    _text("network_group", 100, nullable=True),
    sa.Column("allow_cluster_network", sa.Integer, nullable=False),
    _json("labels"),
    _json("data"),
    _time("registered_at"),
    _time("last_seen_at"),
    _time("claimed_at", nullable=True),
    _text("pause_reason", 500, nullable=True),
    _json("isolation", nullable=True),
    sa.UniqueConstraint("account_id", "node_key"),
    info={"owner": SCHEDULER},
)

work_tokens = sa.Table(
    "work_tokens",
    metadata,
    _id(primary_key=True),
    _text("kind", 10),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    _id("account_id", index=True),
    _id("tenant_id"),
    _id("node_id", index=True),
    _id("lease_id", nullable=True, index=True),
    _text("name", 100),
    _time("created_at"),
    _time("expires_at"),
    _time("last_used_at", nullable=True),
    _time("revoked_at", nullable=True),
    info={"owner": SCHEDULER},
)

attempts = sa.Table(
    "attempts",
    metadata,
    _id(primary_key=True),
    _id("job_id"),
    _id("account_id"),
    _id("tenant_id"),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("ranks", sa.Integer, nullable=False),
    _text("state", 20),
    _text("reason_code", 40, nullable=True),
    _text("reason_message", 2000, nullable=True),
    sa.Column("final", sa.Integer, nullable=True),
    _time("created_at"),
    _time("ready_deadline_at"),
    _time("stop_deadline_at", nullable=True),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    _time("retry_at", nullable=True),
    sa.Column("exit_code", sa.Integer, nullable=True),
    _json("detail"),
    _json("results", nullable=True),
    _json("usage", nullable=True),
    sa.UniqueConstraint("job_id", "number"),
    sa.Index(
        "uq_attempts_live",
        "job_id",
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
    info={"owner": SCHEDULER},
)

_LIVE = sa.text("ended_at IS NULL")
_LIVE_GPU = sa.text("ended_at IS NULL AND gpu_uuid IS NOT NULL")

leases = sa.Table(
    "leases",
    metadata,
    _id(primary_key=True),
    _id("attempt_id"),
    _id("job_id", index=True),
    _id("account_id"),
    _id("node_id"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    _text("state", 20),
    _text("claim_id", 64, nullable=True),
    _text("machine_id", 128),
    _text("gpu_uuid", 128, nullable=True),
    _time("created_at"),
    _time("expires_at"),
    _time("claimed_at", nullable=True),
    _time("ready_at", nullable=True),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    _text("outcome", 20, nullable=True),
    _text("reason_code", 40, nullable=True),
    _text("reason_message", 2000, nullable=True),
    sa.Column("exit_code", sa.Integer, nullable=True),
    sa.Column("signal", sa.Integer, nullable=True),
    _count("log_bytes"),
    sa.Column("log_truncated", sa.Integer, nullable=False),
    _json("results", nullable=True),
    _json("usage", nullable=True),
    _text("report_digest", 64, nullable=True),
    _json("isolation", nullable=True),
    sa.UniqueConstraint("attempt_id", "rank"),
    sa.Index("uq_leases_live_node", "node_id", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    sa.Index(
        "uq_leases_live_gpu", "machine_id", "gpu_uuid", unique=True, sqlite_where=_LIVE_GPU, postgresql_where=_LIVE_GPU
    ),
    sa.Index("ix_leases_live_expiry", "expires_at", sqlite_where=_LIVE, postgresql_where=_LIVE),
    info={"owner": SCHEDULER},
)

events = sa.Table(
    "events",
    metadata,
    _id("job_id", primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    _time("at"),
    _text("type", 40),
    _json("data"),
    info={"owner": SCHEDULER},
)

_RAW = sa.text("codec = 'raw'")

log_chunks = sa.Table(
    "log_chunks",
    metadata,
    _id("attempt_id", primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    _count("size"),
    _text("codec", 10),  # "raw", or "zlib" once archived
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Index("ix_log_chunks_raw", "attempt_id", sqlite_where=_RAW, postgresql_where=_RAW),
    info={"owner": SCHEDULER},
)
