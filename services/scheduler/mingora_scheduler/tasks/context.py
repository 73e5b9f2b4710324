"""What the tasks work with, made once a process: RQ calls plain functions and hands them nothing but ids."""

from __future__ import annotations

from dataclasses import dataclass

import redis
import structlog

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.hints import Hints
from mingora_common.wake import Waker
from mingora_scheduler.store.changes import Changes

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Context:
    """The process's dependencies."""

    database: Database
    clock: Clock
    hints: Hints
    waker: Waker
    client: redis.Redis

    def announce(self, changes: Changes) -> None:
        """Tell the others, after the commit."""
        changes.announce(self.waker, self.hints)

    def forget(self, mark: str) -> None:
        """Delete a mark that says a task waits: from now on another may be enqueued. Do so before reading SQL."""
        try:
            self.client.delete(mark)
        except redis.RedisError as error:
            _log.warning("mark_left", mark=mark, error=error.__class__.__name__)


_current: Context | None = None


def configure(context: Context) -> None:
    """Set the process's context."""
    global _current
    _current = context


def current() -> Context:
    """The process's context; a task that runs without one is a fault in the code."""
    if _current is None:
        raise RuntimeError("the task worker hasn't been configured")
    return _current
