"""A figure with the target it is held against."""

from __future__ import annotations

from typing import Any


def at_least(value: float, least: float) -> dict[str, Any]:
    """The value, its target, and whether it is met."""
    return {"value": round(value, 2), "target": f">= {least:g}", "met": value >= least}


def at_most(value: float, most: float) -> dict[str, Any]:
    """The value, its target, and whether it is met."""
    return {"value": round(value, 2), "target": f"<= {most:g}", "met": value <= most}
