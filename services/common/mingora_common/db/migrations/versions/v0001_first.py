"""The platform's first schema.

Revision: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account_limits",
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("max_file_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_files", sa.BigInteger(), nullable=False),
        sa.Column("max_jobs", sa.BigInteger(), nullable=False),
        sa.Column("max_nodes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_account_limits")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("tenant_id", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("password_hash", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("name", name=op.f("uq_accounts_name")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("tenant_id", sa.String(length=80), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("ranks", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason_code", sa.String(length=40), nullable=True),
        sa.Column("reason_message", sa.String(length=2000), nullable=True),
        sa.Column("final", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ready_deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("stop_deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("detail", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("results", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
    )
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=True),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=True),
        sa.Column("address", sa.String(length=64), nullable=True),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_account_id"), "audit", ["account_id"], unique=False)
    op.create_table(
        "blob_usage",
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_blob_usage")),
    )
    op.create_table(
        "cancel_requests",
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_cancel_requests")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("tenant_id", sa.String(length=80), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("inputs", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("account_id", "idempotency_key", name=op.f("uq_jobs_account_id_idempotency_key")),
    )
    op.create_index(op.f("ix_jobs_account_id_created_at"), "jobs", ["account_id", "created_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("attempt_id", sa.String(length=80), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("node_id", sa.String(length=80), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("claim_id", sa.String(length=64), nullable=True),
        sa.Column("machine_id", sa.String(length=128), nullable=False),
        sa.Column("gpu_uuid", sa.String(length=128), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("ready_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("reason_code", sa.String(length=40), nullable=True),
        sa.Column("reason_message", sa.String(length=2000), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_truncated", sa.Integer(), nullable=False),
        sa.Column("results", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("report_digest", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
        sa.UniqueConstraint("attempt_id", "rank", name=op.f("uq_leases_attempt_id_rank")),
    )
    op.create_index(op.f("ix_leases_job_id"), "leases", ["job_id"], unique=False)
    op.create_index(
        "ix_leases_live_expiry",
        "leases",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "uq_leases_live_gpu",
        "leases",
        ["machine_id", "gpu_uuid"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL AND gpu_uuid IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NULL AND gpu_uuid IS NOT NULL"),
    )
    op.create_index(
        "uq_leases_live_node",
        "leases",
        ["node_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "log_chunks",
        sa.Column("attempt_id", sa.String(length=80), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("codec", sa.String(length=10), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "rank", "start", name=op.f("pk_log_chunks")),
    )
    op.create_index(
        "ix_log_chunks_raw",
        "log_chunks",
        ["attempt_id"],
        unique=False,
        sqlite_where=sa.text("codec = 'raw'"),
        postgresql_where=sa.text("codec = 'raw'"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("tenant_id", sa.String(length=80), nullable=False),
        sa.Column("node_key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("version", sa.String(length=40), nullable=False),
        sa.Column("platform", sa.String(length=100), nullable=False),
        sa.Column("machine_id", sa.String(length=128), nullable=False),
        sa.Column("cpu", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("gpu_uuid", sa.String(length=128), nullable=True),
        sa.Column("runtimes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("image_digest", sa.String(length=80), nullable=True),
        sa.Column("fingerprint", sa.String(length=80), nullable=True),
        sa.Column("network_group", sa.String(length=100), nullable=True),
        sa.Column("allow_cluster_network", sa.Integer(), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("pause_reason", sa.String(length=500), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("account_id", "node_key", name=op.f("uq_nodes_account_id_node_key")),
    )
    op.create_table(
        "objects",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("part_size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("backend", sa.String(length=20), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_objects")),
        sa.UniqueConstraint("account_id", "sha256", "size", name=op.f("uq_objects_account_id_sha256_size")),
    )
    op.create_index(op.f("ix_objects_state_touched_at"), "objects", ["state", "touched_at"], unique=False)
    op.create_table(
        "parts",
        sa.Column("object_id", sa.String(length=80), nullable=False),
        sa.Column("idx", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("object_id", "idx", name=op.f("pk_parts")),
    )
    op.create_table(
        "pins",
        sa.Column("owner", sa.String(length=80), nullable=False),
        sa.Column("object_id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "object_id", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_object_id"), "pins", ["object_id"], unique=False)
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("name", name=op.f("uq_tenants_name")),
    )
    op.create_table(
        "token_revocations",
        sa.Column("token_id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_token_revocations")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("scopes", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_index(op.f("ix_tokens_account_id"), "tokens", ["account_id"], unique=False)
    op.create_table(
        "work_tokens",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=80), nullable=False),
        sa.Column("tenant_id", sa.String(length=80), nullable=False),
        sa.Column("node_id", sa.String(length=80), nullable=False),
        sa.Column("lease_id", sa.String(length=80), nullable=True),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_work_tokens_hash")),
    )
    op.create_index(op.f("ix_work_tokens_account_id"), "work_tokens", ["account_id"], unique=False)
    op.create_index(op.f("ix_work_tokens_lease_id"), "work_tokens", ["lease_id"], unique=False)
    op.create_index(op.f("ix_work_tokens_node_id"), "work_tokens", ["node_id"], unique=False)
    op.execute(
        """CREATE VIEW live_token AS
        SELECT t.hash AS hash, t.id AS token_id, 'user' AS kind, t.account_id AS account_id, a.tenant_id AS tenant_id,
               a.name AS account_name, n.name AS tenant_name, t.name AS name, t.scopes AS scopes,
               t.created_at AS created_at, t.expires_at AS expires_at, t.last_used_at AS last_used_at,
               NULL AS node_id, NULL AS lease_id, NULL AS job_id,
               l.max_file_bytes AS max_file_bytes, l.max_bytes AS max_bytes, l.max_files AS max_files,
               l.max_jobs AS max_jobs, l.max_nodes AS max_nodes
        FROM tokens t JOIN accounts a ON a.id = t.account_id JOIN tenants n ON n.id = a.tenant_id
        JOIN account_limits l ON l.account_id = a.id
        WHERE t.revoked_at IS NULL AND a.disabled_at IS NULL
        UNION ALL
        SELECT w.hash, w.id, w.kind, w.account_id, w.tenant_id, a.name, n.name, w.name, 'research:work',
               w.created_at, w.expires_at, w.last_used_at, w.node_id, w.lease_id, s.job_id,
               l.max_file_bytes, l.max_bytes, l.max_files, l.max_jobs, l.max_nodes
        FROM work_tokens w JOIN accounts a ON a.id = w.account_id JOIN tenants n ON n.id = a.tenant_id
        JOIN account_limits l ON l.account_id = a.id LEFT JOIN leases s ON s.id = w.lease_id
        WHERE w.revoked_at IS NULL AND a.disabled_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM token_revocations r WHERE r.token_id = w.id)
          AND (w.kind = 'node' OR EXISTS (
              SELECT 1 FROM work_tokens p
              WHERE p.node_id = w.node_id AND p.kind = 'node' AND p.revoked_at IS NULL
                AND NOT EXISTS (SELECT 1 FROM token_revocations q WHERE q.token_id = p.id)))
        """
    )
    op.execute(
        """CREATE VIEW job_status AS
        SELECT j.id AS job_id, j.account_id AS account_id, j.tenant_id AS tenant_id, j.name AS name,
               j.idempotency_key AS idempotency_key, j.priority AS priority, j.spec AS spec, j.inputs AS inputs,
               j.created_at AS created_at, c.at AS cancel_requested_at, a.id AS attempt_id, a.number AS attempt,
               a.ranks AS ranks, a.started_at AS started_at, a.retry_at AS retry_at, a.exit_code AS exit_code,
               a.detail AS detail, a.results AS results, a.usage AS usage,
               a.reason_code AS reason_code, a.reason_message AS reason_message,
               CASE WHEN a.id IS NULL OR a.final = 0
                    THEN CASE WHEN c.job_id IS NULL THEN 'queued' ELSE 'cancelled' END
                    ELSE a.state END AS state,
               CASE WHEN a.final = 1 THEN a.ended_at
                    WHEN (a.id IS NULL OR a.final = 0) AND c.job_id IS NOT NULL THEN c.at
                    ELSE NULL END AS finished_at
        FROM jobs j
        LEFT JOIN attempts a ON a.job_id = j.id
             AND a.number = (SELECT MAX(b.number) FROM attempts b WHERE b.job_id = j.id)
        LEFT JOIN cancel_requests c ON c.job_id = j.id
        """
    )
    op.execute(
        """
        CREATE VIEW job_event AS SELECT job_id, seq, at, type, data FROM events
        """
    )
    op.execute(
        """CREATE VIEW job_log AS
        SELECT s.job_id AS job_id, s.attempt_id AS attempt_id, s.attempt AS attempt, s.rank AS rank,
               s.log_bytes AS size, s.log_truncated AS truncated,
               CASE WHEN s.ended_at IS NULL THEN 0 ELSE 1 END AS ended
        FROM leases s
        """
    )
    op.execute(
        """
        CREATE VIEW job_log_chunk AS SELECT attempt_id, rank, start, size, codec, data FROM log_chunks
        """
    )


def downgrade() -> None:
    for view in ("job_log_chunk", "job_log", "job_event", "job_status", "live_token"):
        op.execute(f"DROP VIEW {view}")
    for table in (
        "work_tokens",
        "tokens",
        "token_revocations",
        "tenants",
        "pins",
        "parts",
        "objects",
        "nodes",
        "log_chunks",
        "leases",
        "jobs",
        "events",
        "cancel_requests",
        "blob_usage",
        "audit",
        "attempts",
        "accounts",
        "account_limits",
    ):
        op.drop_table(table)
