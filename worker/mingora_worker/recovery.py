"""Clears up after a worker that was killed: its job's processes, its unreported attempt, its folder."""

from __future__ import annotations

from mingora.errors import MingoraError
from mingora_worker.console import Console
from mingora_worker.interrupt import Interrupt
from mingora_worker.lease import steady_clock
from mingora_worker.link import Abandoned, Connect, LeaseLost, Link
from mingora_worker.logs import Spool
from mingora_worker.monitor import kill_all, leftovers
from mingora_worker.state import JobFolder, LeaseRecord, Root
from mingora_worker.texts import _


def recover(root: Root, connect: Connect, node_id: str, console: Console, interrupt: Interrupt) -> None:
    """Ends and reports everything that a former worker left in `root`."""
    for folder in root.leftovers():
        record = folder.record()
        if record is not None:
            text = _("Clearing up job {job}, which was running when the worker ended.")
            console.event("recovering", text.format(job=record.job_id), job=record.job_id)
            kill_all(lambda record=record: leftovers(record.mark, record.processes))  # type: ignore[misc]
            report_stopped(folder, record, connect, node_id, console, interrupt)
            if record.claim_id == root.pending_claim():
                root.forget_claim()
        folder.remove()


def report_stopped(
    folder: JobFolder, record: LeaseRecord, connect: Connect, node_id: str, console: Console, interrupt: Interrupt
) -> None:
    """Reports an attempt as failed by the worker's end, with the log's rest, if its lease still lives."""
    link = Link(connect, node_id, record, sent_at=steady_clock(), console=console, interrupt=interrupt)
    spool = None
    try:
        link.persist(link.renew)
        link.keep()
        spool = Spool(folder.log, record.log_cap)
        spool.seal()
        link.send_log(spool, resume=True)
        link.report(
            {
                "leaseId": record.lease_id,
                "attempt": record.attempt,
                "outcome": "failed",
                "reason": {"code": "worker_stopped", "message": _("The worker was stopped.")},
                "exitCode": None,
                "signal": None,
                "logBytes": link.drain_log(),
                "results": [],
                "usage": {"cpuSeconds": 0, "memoryMiB": 0, "maxMemoryMiB": 0},
                "warnings": [],
            }
        )
    except (LeaseLost, Abandoned):
        console.event("lease_lost", _("The lease of job {job} is over already.").format(job=record.job_id))
    except (MingoraError, OSError) as error:
        console.event("refused", str(error), job=record.job_id)
    finally:
        link.close()
        if spool is not None:
            spool.close()
