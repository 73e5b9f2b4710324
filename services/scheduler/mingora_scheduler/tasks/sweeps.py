"""The sweeps that the cron enqueues: each catches up on what lost hints, lost workers and restarts left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
from rq.timeouts import JobTimeoutException

from mingora_common import hints
from mingora_scheduler.store import logs, placement, tokens
from mingora_scheduler.store import purge as purging
from mingora_scheduler.store import sweeps as store
from mingora_scheduler.tasks.context import Context, current

_log = structlog.get_logger()

SECONDS_BETWEEN: dict[str, int] = {
    hints.SWEEP_EXPIRE: 2,
    hints.SWEEP_PLACE: 2,
    hints.SWEEP_CANCEL: 5,
    hints.SWEEP_ARCHIVE: 60,
    hints.SWEEP_PURGE: 300,
}


def sweep_mark(name: str) -> str:
    """The Redis key that says that this sweep waits in the queue."""
    return f"mingora:sweeping:{name}"


def expire() -> None:
    """End leases and attempts whose time is over."""
    context = _begin(hints.SWEEP_EXPIRE)
    now = context.clock.now()
    store.turn_back(context.database, now)
    _each(
        store.overdue(context.database, now),
        lambda attempt_id: context.announce(store.expire(context.database, attempt_id, now)),
    )


def place() -> None:
    """Place for every account with waiting nodes."""
    context = _begin(hints.SWEEP_PLACE)
    now = context.clock.now()
    _each(
        store.waiting_accounts(context.database, now),
        lambda account_id: context.announce(placement.place(context.database, account_id, now)),
    )


def cancel() -> None:
    """Carry out cancel requests of which the hint was lost."""
    context = _begin(hints.SWEEP_CANCEL)
    now = context.clock.now()
    _each(
        store.cancels_left(context.database),
        lambda job_id: context.announce(store.cancel(context.database, job_id, now)),
    )


def archive() -> None:
    """Compress the logs of ended attempts of which the hint was lost."""
    context = _begin(hints.SWEEP_ARCHIVE)
    _each(store.unarchived(context.database), lambda attempt_id: logs.archive(context.database, attempt_id))


def purge() -> None:
    """Delete what is left of deleted jobs, and old tokens."""
    context = _begin(hints.SWEEP_PURGE)
    _each(store.deleted_jobs(context.database), lambda job_id: purging.purge(context.database, job_id))
    with context.database.write() as connection:
        tokens.clean(connection, context.clock.now())


def _begin(name: str) -> Context:
    context = current()
    context.forget(sweep_mark(name))
    return context


def _each(ids: Iterable[str], act: Callable[[str], object]) -> None:
    """Act on every id; one that fails holds up no other, and the task fails at the end."""
    failure: Exception | None = None
    for each in ids:
        try:
            act(each)
        except JobTimeoutException:
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            _log.error("sweep_failed", id=each, exc_info=error)
            failure = error
    if failure is not None:
        raise failure
