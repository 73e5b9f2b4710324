"""The views as SQLAlchemy tables to select from (``schema.VIEWS`` holds their SQL)."""

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

job_log_chunk = _view(
    "job_log_chunk", attempt_id=sa.String, rank=sa.Integer, start=sa.BigInteger, size=sa.BigInteger, codec=sa.String,
    data=sa.LargeBinary,
)  # fmt: skip
