"""The interfaces between the services: views as SQLAlchemy tables to select from, and their SQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

_JSON = sa.JSON(none_as_null=True)


def _view(view: str, /, **columns: Any) -> sa.TableClause:
    return sa.table(view, *(sa.column(column, kind) for column, kind in columns.items()))


live_token = _view(
    "live_token", hash=sa.String, token_id=sa.String, kind=sa.String, account_id=sa.String, tenant_id=sa.String,
    account_name=sa.String, tenant_name=sa.String, name=sa.String, scopes=sa.String, created_at=sa.BigInteger,
    expires_at=sa.BigInteger, last_used_at=sa.BigInteger, node_id=sa.String, lease_id=sa.String, job_id=sa.String,
    max_file_bytes=sa.BigInteger, max_bytes=sa.BigInteger, max_files=sa.BigInteger, max_jobs=sa.BigInteger,
    max_nodes=sa.BigInteger,
)  # fmt: skip

job_status = _view(
    "job_status", job_id=sa.String, account_id=sa.String, tenant_id=sa.String, name=sa.String,
    idempotency_key=sa.String, priority=sa.Integer, spec=_JSON, inputs=_JSON, created_at=sa.BigInteger,
    cancel_requested_at=sa.BigInteger, attempt_id=sa.String, attempt=sa.Integer, ranks=sa.Integer,
    started_at=sa.BigInteger, retry_at=sa.BigInteger, exit_code=sa.Integer, detail=_JSON, results=_JSON, usage=_JSON,
    reason_code=sa.String, reason_message=sa.String, state=sa.String, finished_at=sa.BigInteger,
)  # fmt: skip

job_event = _view(
    "job_event", job_id=sa.String, seq=sa.Integer, at=sa.BigInteger, type=sa.String, data=_JSON
)  # fmt: skip

job_log = _view(
    "job_log", job_id=sa.String, attempt_id=sa.String, attempt=sa.Integer, rank=sa.Integer, size=sa.BigInteger,
    truncated=sa.Integer, ended=sa.Integer,
)  # fmt: skip

job_isolation = _view("job_isolation", attempt_id=sa.String, rank=sa.Integer, isolation=_JSON)

job_log_chunk = _view(
    "job_log_chunk", attempt_id=sa.String, rank=sa.Integer, start=sa.BigInteger, size=sa.BigInteger, codec=sa.String,
    data=sa.LargeBinary,
)  # fmt: skip

VIEWS: dict[str, str] = {
    # A token that isn't revoked, whose account isn't disabled, whose lease (if any) lives and whose node's token does.
    # Expiry is compared by the reader, with its own clock.
    "live_token": """
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
    """,
    # A job and its latest attempt. Between a failed attempt and its retry the job is queued again.
    "job_status": """
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
    """,
    "job_event": "SELECT job_id, seq, at, type, data FROM events",
    # One row a rank of each attempt: how much of its log has been acknowledged, and whether more can come.
    "job_log": """
        SELECT s.job_id AS job_id, s.attempt_id AS attempt_id, s.attempt AS attempt, s.rank AS rank,
               s.log_bytes AS size, s.log_truncated AS truncated,
               CASE WHEN s.ended_at IS NULL THEN 0 ELSE 1 END AS ended
        FROM leases s
    """,
    # The profile under which a rank ran in a container; no row for one that didn't.
    "job_isolation": "SELECT attempt_id, rank, isolation FROM leases WHERE isolation IS NOT NULL",
    "job_log_chunk": "SELECT attempt_id, rank, start, size, codec, data FROM log_chunks",
}
