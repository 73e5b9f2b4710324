"""Rows on their way between a database and an archive, and the parts that rows name."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from mingora_blobstore.domain.objects import PartKey
from mingora_common.db.schema import metadata, objects, parts

TABLES: dict[str, sa.Table] = dict(sorted(metadata.tables.items()))
PAGE = 500
# Levels of lists and objects in a JSON column; the platform's own have fewer than ten.
MAX_LEVELS = 100

_KEY = (objects.c.id, objects.c.generation, parts.c.idx, parts.c.sha256)


def columns() -> dict[str, list[str]]:
    """Every table's columns, as the manifest states them."""
    return {name: table.columns.keys() for name, table in TABLES.items()}


def read(connection: sa.Connection, table: sa.Table) -> Iterator[list[Any]]:
    """All rows of a table as JSON's values."""
    binary = _binary(table)
    for row in connection.execute(sa.select(table).order_by(*table.primary_key)):
        yield [
            base64.b64encode(value).decode() if index in binary and value is not None else value
            for index, value in enumerate(row)
        ]


def values(table: sa.Table, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows of an archive as they are inserted; raises ValueError for what isn't a row of the table."""
    columns = list(table.columns)
    return [{column.name: _value(column, value) for column, value in zip(columns, row, strict=True)} for row in rows]


def named_parts(connection: sa.Connection) -> Iterator[tuple[PartKey, int]]:
    """Every part that has a row, with its size in bytes, in one read."""
    query = sa.select(*_KEY, parts.c.size).join_from(objects, parts, parts.c.object_id == objects.c.id)
    for row in connection.execute(query.order_by(parts.c.object_id, parts.c.idx)):
        yield PartKey(*row[:4]), row.size


def part_page(connection: sa.Connection, after: tuple[str, int] | None) -> list[tuple[PartKey, int]]:
    """The next ``PAGE`` parts past ``(object, index)``: for a look through all of them without one long read."""
    query = sa.select(*_KEY, parts.c.size).join_from(objects, parts, parts.c.object_id == objects.c.id)
    if after is not None:
        query = query.where(sa.tuple_(parts.c.object_id, parts.c.idx) > sa.tuple_(*map(sa.literal, after)))
    rows = connection.execute(query.order_by(parts.c.object_id, parts.c.idx).limit(PAGE)).all()
    return [(PartKey(*row[:4]), row.size) for row in rows]


def _binary(table: sa.Table) -> frozenset[int]:
    return frozenset(i for i, column in enumerate(table.columns) if isinstance(column.type, sa.LargeBinary))


def _value(column: sa.Column[Any], value: Any) -> Any:
    """A value of the archive as it is inserted; raises ValueError for what the column can't hold."""
    if value is None and column.nullable:
        return None
    match column.type:
        case sa.LargeBinary():
            return _bytes(value)
        case sa.JSON() if _is_json(value, MAX_LEVELS):
            return value
        case sa.Integer():
            bits = 63 if isinstance(column.type, sa.BigInteger) else 31
            if type(value) is int and -(1 << bits) <= value < 1 << bits:
                return value
        case sa.String() if isinstance(value, str):
            value.encode()  # no halves of characters
            return value
    raise ValueError(f"{column.table.name}.{column.name} holds something else")


def _is_json(value: Any, levels: int) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_json(each, levels - 1) for each in inner)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        raise ValueError("a binary column isn't base64") from error
