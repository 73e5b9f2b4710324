"""A fault in the worker's own code ends the job that met it, with a reason, and not the worker."""

from __future__ import annotations

from typing import Any

import pytest

from mingora_worker.attempt import Attempt
from mingora_worker.link import LeaseLost


class Bare(Attempt):
    """An attempt whose parts are replaced by what a test needs."""

    def __init__(self, fault: BaseException) -> None:
        self._fault = fault
        self._running = None
        self.sealed = False
        self._spool: Any = self

    def seal(self) -> None:
        self.sealed = True

    def _runtime(self) -> Any:
        raise self._fault


@pytest.mark.req("WORK-3")
def test_an_unforeseen_exception_becomes_the_jobs_reason() -> None:
    attempt = Bare(KeyError("inputs"))
    outcome = attempt._work()
    assert (outcome.outcome, outcome.code, outcome.message) == ("failed", "worker_error", "KeyError: 'inputs'")
    assert attempt.sealed


@pytest.mark.req("JOB-7")
def test_a_lost_lease_is_no_fault() -> None:
    with pytest.raises(LeaseLost):
        Bare(LeaseLost())._work()
