"""Waiting reads: look until there is something to say, or answer with what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from flask import Response

from mingora_api.routes.context import context
from mingora_common.http import wait_as_caller
from mingora_common.wake import Full

T = TypeVar("T")


def watch(
    latest: T,
    look: Callable[[], T],
    *,
    ready: Callable[[T], bool],
    topics: Iterable[str],
    seconds: float,
    answer: Callable[[T], Response],
) -> Response:
    """Answer with ``latest``, the first look, if that is ``ready``; else with the first that is, or after ``seconds``.

    Without a place to wait the answer comes at once, with ``Retry-After``.
    """

    def look_again() -> T | None:
        nonlocal latest
        latest = look()
        return latest if ready(latest) else None

    if ready(latest) or seconds <= 0:
        return answer(latest)
    try:
        wait_as_caller(look_again, context().waiters, topics, seconds)
    except Full:
        response = answer(latest)
        response.headers["Retry-After"] = "1"
        return response
    return answer(latest)
