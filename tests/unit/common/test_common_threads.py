"""However a service is served: one process, and more threads than reads may wait."""

from __future__ import annotations

import pytest

from mingora_common.serving import RESERVE_THREADS, gunicorn_settings


@pytest.mark.req("JOB-9", "OPS-3")
@pytest.mark.parametrize("places", [0, 1, 256, 10_000])
def test_waiting_reads_leave_threads_to_others_and_figures_are_one_processs(places: int) -> None:
    chosen = gunicorn_settings([3], places)
    assert chosen["threads"] == places + RESERVE_THREADS
    assert chosen["worker_connections"] > chosen["threads"]
    assert chosen["workers"] == 1  # a process's figures are the service's: docs/observability.md
