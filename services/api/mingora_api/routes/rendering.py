"""A job as JSON, the way docs/protocol.md states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from mingora_api.store import jobs
from mingora_common.clock import rfc3339, rfc3339_or_none


def render_job(connection: sa.Connection, row: sa.Row[Any]) -> dict[str, Any]:
    """The whole job."""
    summary = render_summaries(connection, [row])[0]
    profiles = {} if row.attempt_id is None else jobs.isolation(connection, row.attempt_id)
    ranks = [{**rank, "isolation": profiles.get(rank["rank"])} for rank in summary["ranks"]]
    return {**summary, "ranks": ranks, "spec": row.spec, "inputs": row.inputs, "results": row.results or []}


def render_summaries(connection: sa.Connection, rows: list[sa.Row[Any]]) -> list[dict[str, Any]]:
    """Jobs without spec, inputs, results and their ranks' isolation."""
    sizes = jobs.log_sizes(connection, [row.attempt_id for row in rows if row.attempt_id is not None])
    return [_summary(row, sizes) for row in rows]


def _summary(row: sa.Row[Any], sizes: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    ranks = [
        {
            "rank": rank["rank"],
            "nodeId": rank["nodeId"],
            "nodeName": rank["nodeName"],
            "state": rank["state"],
            "exitCode": rank["exitCode"],
            "logBytes": sizes.get((row.attempt_id, rank["rank"]), 0),
        }
        for rank in (row.detail or {}).get("ranks", [])
    ]
    return {
        "id": row.job_id,
        "name": row.name,
        "key": row.idempotency_key,
        "state": row.state,
        "reason": _reason(row),
        "cancelRequested": row.cancel_requested_at is not None,
        "priority": row.priority,
        "attempt": row.attempt,
        "createdAt": rfc3339(row.created_at),
        "startedAt": rfc3339_or_none(row.started_at),
        "finishedAt": rfc3339_or_none(row.finished_at),
        "exitCode": row.exit_code,
        "ranks": ranks,
        "usage": None if row.usage is None else {**row.usage, "verified": False},
    }


def _reason(row: sa.Row[Any]) -> dict[str, str] | None:
    if row.state in ("failed", "cancelled") and row.reason_code is not None:
        return {"code": row.reason_code, "message": row.reason_message or ""}
    if row.state == "cancelled":
        return {"code": "cancelled", "message": "Cancelled before it started."}
    return None
