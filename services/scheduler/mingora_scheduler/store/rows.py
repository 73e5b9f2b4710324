"""The type of a row of which the columns are known by the query."""

from __future__ import annotations

from typing import Any, Unpack

import sqlalchemy as sa

Row = sa.Row[Unpack[tuple[Any, ...]]]
