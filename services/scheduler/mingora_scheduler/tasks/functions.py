"""The tasks that hints name (``mingora_common.hints``). Each is short and idempotent and takes one id."""

from __future__ import annotations

from mingora_common import hints
from mingora_common.ids import is_id
from mingora_scheduler.store import logs, placement, sweeps
from mingora_scheduler.store import purge as purging
from mingora_scheduler.tasks.context import current


def place(account_id: str) -> None:
    """Place the account's queued jobs on its waiting nodes."""
    _check("acc", account_id)
    context = current()
    context.forget(hints.placing_mark(account_id))
    context.announce(placement.place(context.database, account_id, context.clock.now()))


def cancel(job_id: str) -> None:
    """Carry out a committed cancel request."""
    _check("job", job_id)
    context = current()
    context.announce(sweeps.cancel(context.database, job_id, context.clock.now()))


def purge(job_id: str) -> None:
    """Delete what is left of a deleted job."""
    _check("job", job_id)
    purging.purge(current().database, job_id)


def archive_log(attempt_id: str) -> None:
    """Compress a part of an ended attempt's log, and leave a hint for the rest."""
    _check("att", attempt_id)
    context = current()
    if logs.archive(context.database, attempt_id):
        context.hints.archive_log(attempt_id)


def ping() -> None:
    """Nothing: that it was done says that the worker works."""


def _check(prefix: str, value: object) -> None:
    if not is_id(prefix, value):
        raise ValueError(f"not an id of the kind {prefix}")
