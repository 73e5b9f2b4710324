"""The tasks that hints name (``mingora_common.hints``). Each is short and idempotent and takes one id."""

from __future__ import annotations

from mingora_common import hints
from mingora_common.ids import is_id
from mingora_scheduler.store import logs, placement, sweeps
from mingora_scheduler.store import purge as purging
from mingora_scheduler.tasks.context import Context, current


def place(account_id: str) -> None:
    """Place the account's queued jobs on its waiting nodes."""
    context = _begin(hints.PLACE, "acc", account_id)
    context.announce(placement.place(context.database, account_id, context.clock.now()))


def cancel(job_id: str) -> None:
    """Carry out a committed cancel request."""
    context = _begin(hints.CANCEL, "job", job_id)
    context.announce(sweeps.cancel(context.database, job_id, context.clock.now()))


def purge(job_id: str) -> None:
    """Delete what is left of a deleted job."""
    purging.purge(_begin(hints.PURGE, "job", job_id).database, job_id)


def archive_log(attempt_id: str) -> None:
    """Compress a part of an ended attempt's log, and leave a hint for the rest."""
    context = _begin(hints.ARCHIVE_LOG, "att", attempt_id)
    if logs.archive(context.database, attempt_id):
        context.hints.archive_log(attempt_id)


def ping() -> None:
    """Nothing: that it was done says that the worker works."""


def _begin(task: str, prefix: str, argument: str) -> Context:
    """The process's context; from now on the same hint may be sent again."""
    if not is_id(prefix, argument):
        raise ValueError(f"not an id of the kind {prefix}")
    context = current()
    context.forget(hints.waiting_mark(task, argument))
    return context
