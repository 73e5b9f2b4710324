"""Fills a stack's database with jobs that ended long ago: copies of one that really ran, with all of its rows."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from pathlib import Path
from typing import Any

# The tables that hold one job's rows, with the columns that differ from copy to copy: ids, and what must be unique.
TABLES = {
    "jobs": ("id", "idempotency_key"),
    "attempts": ("id", "job_id"),
    "leases": ("id", "job_id", "attempt_id"),
    "work_tokens": ("id", "lease_id", "hash"),
    "events": ("job_id",),
    "log_chunks": ("attempt_id",),
}


def copy_job(database: Path, job_id: str, times: int) -> None:
    """Copy the ended job ``job_id`` ``times`` times, each a second older than the last."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        rows = {table: _rows(connection, table, job_id) for table in TABLES}
        for number in range(1, times + 1):
            names: dict[str, str] = {}
            for table, columns in TABLES.items():
                for row in rows[table]:
                    new = {
                        column: names.setdefault(row[column], secrets.token_urlsafe(20))
                        for column in columns
                        if row[column] is not None
                    }
                    copy = row | new
                    if table == "jobs":
                        copy["created_at"] -= 1000 * number
                    marks = ", ".join("?" * len(copy))
                    statement = f"INSERT INTO {table} ({', '.join(copy)}) VALUES ({marks})"  # noqa: S608 - our names
                    connection.execute(statement, tuple(copy.values()))


def _rows(connection: sqlite3.Connection, table: str, job_id: str) -> list[dict[str, Any]]:
    where = {
        "jobs": "id = ?",
        "log_chunks": "attempt_id IN (SELECT id FROM attempts WHERE job_id = ?)",
        "work_tokens": "lease_id IN (SELECT id FROM leases WHERE job_id = ?)",
    }.get(table, "job_id = ?")
    cursor = connection.execute(f"SELECT * FROM {table} WHERE {where}", (job_id,))  # noqa: S608 - our names
    names = [field[0] for field in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
