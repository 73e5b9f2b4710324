"""One attempt, from a claimed lease to the acknowledged report."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mingora import faults
from mingora.errors import ApiError, MingoraError
from mingora.transfer import upload_files
from mingora_worker.api import Grant, wire_text
from mingora_worker.caller import TICK_SECONDS
from mingora_worker.link import Abandoned, LeaseLost, Link
from mingora_worker.logs import Pump, Spool
from mingora_worker.monitor import Usage
from mingora_worker.outcome import NO_EXIT, Ended, Outcome, by_exit, failed, refused_upload, stopped
from mingora_worker.results import Collected, TooManyFiles
from mingora_worker.runtimes.base import Exit, Isolation, Launch, Lost, Running, Runtime, StartFailed
from mingora_worker.stage import StageFailed, stage
from mingora_worker.state import JobFolder, LeaseRecord
from mingora_worker.texts import _

BREACH_GRACE_SECONDS = 1.0
# For what the first process left running when it ended.
LEFTOVER_GRACE_SECONDS = 3.0
LOOK_SECONDS = 0.05
PIPE_SECONDS = 3.0
SAMPLE_SECONDS = 1.0
# Most short jobs are seen once at least.
FIRST_SAMPLE_SECONDS = 0.01
# How soon a wish to stop is seen: a cancel that doesn't wait is over in a tenth of a second.
WATCH_SECONDS = 0.02


class Attempt:
    """Runs one grant. `runtimes` by name; `data` and `gpu_index` are what this worker offers.

    `within_budget` checks --max-disk.
    """

    def __init__(
        self,
        grant: Grant,
        record: LeaseRecord,
        folder: JobFolder,
        link: Link,
        runtimes: Mapping[str, Runtime],
        *,
        data: Mapping[str, Path],
        gpu_index: int | None,
        within_budget: Callable[[], bool],
    ) -> None:
        self._grant = grant
        self._record = record
        self._folder = folder
        self._link = link
        self._lease = link.lease
        self._runtimes = runtimes
        self._data = data
        self._gpu_index = gpu_index
        self._within_budget = within_budget
        self._spool = Spool(folder.log, grant.log_cap)
        self._running: Running | None = None
        self._usage = Usage()
        self._warnings: list[str] = []

    def run(self) -> None:
        """Works until the report is acknowledged or the lease is over. Nothing of the job runs afterwards."""
        say = self._link.console.event
        name = str(self._grant.spec.get("name", ""))
        say("job", _("Job {job} ({name}) begins.").format(job=self._grant.job_id, name=name), job=self._grant.job_id)
        self._link.keep()
        self._link.send_log(self._spool)
        try:
            self._deliver(self._work())
        except LeaseLost:
            text = _("The lease of job {job} is over; its work is dropped.")
            say("lease_lost", text.format(job=self._grant.job_id), job=self._grant.job_id)
        except Abandoned:
            say("abandoned", _("Job {job} is stopped at once.").format(job=self._grant.job_id), job=self._grant.job_id)
        finally:
            if self._running is not None:
                self._running.close()
            self._link.close()
            self._spool.close()

    # -- until the process has ended ---------------------------------------------------------------------------

    def _work(self) -> Outcome:
        try:
            runtime = self._runtime()
            self._prepare(runtime.isolation(self._grant))
            running = self._start(runtime)
            outcome = self._watch(running)
            self._usage = running.sample()
        except Ended as ended:
            outcome = ended.outcome
        except Lost as lost:
            outcome = Outcome("failed", "engine_lost", lost.message)
        except MingoraError as error:
            outcome = Outcome("failed", "worker_error", error.message)
        except OSError as error:
            code = "disk_full" if error.errno == errno.ENOSPC else "worker_error"
            outcome = Outcome("failed", code, str(error))
        except (LeaseLost, Abandoned):
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours ends this job, told, and not the worker)
            outcome = Outcome("failed", "worker_error", f"{type(error).__name__}: {error}")
        if self._running is not None:
            self._running.kill()
        faults.point("process/ended")
        self._spool.seal()
        return outcome

    def _check(self) -> None:
        """Raises when the attempt has to end."""
        self._link.check()
        if self._lease.stop is not None:
            raise stopped(self._lease.stop)
        if self._link.interrupt.requested:
            raise failed("worker_stopped", _("The worker was stopped."))

    def _runtime(self) -> Runtime:
        """What the job wants to run in, if this worker can."""
        spec = self._grant.spec
        name = spec.get("runtime", "native")
        if name not in self._runtimes:
            raise failed("worker_error", _("This worker doesn't run {runtime} jobs.").format(runtime=name))
        if name == "docker" and (spec.get("training") or {}).get("algorithm") == "gradient_sharded":
            raise failed(
                "worker_error",
                _("gradient_sharded exchanges through the platform, and no credential of it enters a container."),
            )
        missing = [name for name in spec.get("data") or [] if name not in self._data]
        if missing:
            raise failed("worker_error", _("This worker has no data {names}.").format(names=", ".join(missing)))
        return self._runtimes[name]

    def _prepare(self, isolation: Isolation) -> None:
        """Inputs there and verified, every rank ready."""
        grant, lease = self._grant, self._lease
        try:
            digest = self._link.persist(
                lambda: stage(
                    self._link.transport,
                    grant.inputs,
                    grant.inputs_digest,
                    self._folder.project,
                    check=self._check,
                    pause=lambda seconds: self._link.pause(seconds, self._check),
                ),
                self._check,
            )
        except StageFailed as error:
            raise failed(error.code, error.message) from error

        def ready() -> None:
            sent_at = lease.clock()
            answer = self._link.api.ready(
                lease.id, lease.attempt, digest, isolation=isolation.profile, warnings=isolation.warnings
            )
            lease.accept(answer, sent_at)

        self._link.persist(ready, self._check)
        while not lease.start:
            self._check()
            lease.wait(TICK_SECONDS)
        self._check()

    def _start(self, runtime: Runtime) -> Running:
        launch = Launch(self._grant, self._folder, self._record.mark, self._data, self._gpu_index)
        try:
            running = runtime.start(launch)
        except StartFailed as error:
            raise failed(error.code, error.message) from error
        self._running = running
        faults.point("process/started")
        self._lease.set_started()
        return running

    def _watch(self, running: Running) -> Outcome:
        """Stays with the process until it and all it started have ended and the log is whole."""
        pump = Pump(running.output, self._spool)
        try:
            outcome = by_exit(self._until_exit(running))
            if running.alive():
                running.terminate()
            self._end_all(running, LEFTOVER_GRACE_SECONDS)
        except (LeaseLost, Abandoned):
            running.kill()  # before anything is waited for
            raise
        except Ended as ended:
            if ended.grace:
                running.terminate()
            self._end_all(running, ended.grace)
            outcome = ended.outcome
            outcome.exit = running.wait(PIPE_SECONDS) or NO_EXIT
        finally:
            pump.finish(PIPE_SECONDS)
        return outcome

    def _until_exit(self, running: Running) -> Exit:
        seconds = self._grant.spec.get("timeoutSeconds")
        clock = self._lease.clock
        started, step = clock(), FIRST_SAMPLE_SECONDS
        sample_at = started + step
        while True:
            exit_ = running.wait(max(0.0, min(WATCH_SECONDS, sample_at - clock())))
            if exit_ is not None:
                return exit_
            self._check()
            if seconds is not None and clock() - started >= seconds:
                raise failed("timed_out", _("The job ran longer than {seconds} seconds.").format(seconds=seconds))
            if clock() >= sample_at:
                self._sample(running)
                step = min(SAMPLE_SECONDS, step * 2)
                sample_at = clock() + step

    def _sample(self, running: Running) -> None:
        self._usage = running.sample()
        self._lease.set_usage(_usage(self._usage))
        processes = running.processes()
        if processes != self._record.processes:
            self._record.processes = processes
            with contextlib.suppress(OSError):
                self._folder.save(self._record, durable=False)
        breach = running.breach(self._usage)
        if breach is not None:
            raise failed(breach.code, breach.message, BREACH_GRACE_SECONDS)
        if self._spool.error is not None:
            raise failed("disk_full", _("The log can't be written: {reason}").format(reason=self._spool.error))
        if not self._within_budget():
            raise failed("disk_full", _("The job uses more disk than the worker's --max-disk allows."))

    def _end_all(self, running: Running, grace: float) -> None:
        """Time to end by themselves, then KILL; at once when nothing can be reported any more."""
        until = self._lease.clock() + grace
        while running.alive() and self._lease.clock() < until:
            self._link.check()
            self._lease.wait(LOOK_SECONDS)
        if not running.kill():
            self._warnings.append(_("Some processes of the job could not be ended."))

    # -- afterwards --------------------------------------------------------------------------------------------

    def _deliver(self, outcome: Outcome) -> None:
        """Log and results first, the report last: with it new work may follow."""
        entries: list[dict[str, Any]] = []
        if self._running is not None:
            entries = self._results(self._running, outcome)
            self._warnings += self._running.warnings()
        faults.point("results/uploaded")
        log_bytes = self._link.drain_log()
        faults.point("log/acknowledged")
        if log_bytes < self._spool.size:
            self._warnings.append(_("The end of the log was refused by the platform."))
        stop = self._lease.stop
        if stop is not None and outcome.outcome != "cancelled":
            asked = stopped(stop).outcome
            outcome.outcome, outcome.code, outcome.message = asked.outcome, asked.code, asked.message
        body = self._report(outcome, log_bytes, entries)
        try:
            self._link.report(body)
        except MingoraError as error:
            outcome.outcome, outcome.code, outcome.message = "failed", "result_refused", error.message
            body = self._report(outcome, log_bytes, [])
            try:
                self._link.report(body)
            except MingoraError as refusal:
                self._link.console.event("refused", refusal.message, job=self._grant.job_id)
                return
        self._say_end(outcome)

    def _results(self, running: Running, outcome: Outcome) -> list[dict[str, Any]]:
        """Uploads what is under results/. A job that failed anyway keeps its own reason.

        What there is room for is kept when there isn't room for all: the user has it, and gets the room back with it.
        """
        entries: list[dict[str, Any]] = []
        obeyed = self._lease.stop is not None and outcome.code == self._lease.stop.reason

        def check() -> None:
            self._link.check()
            if self._lease.stop is not None and not obeyed:  # who cancels now doesn't wait for what is still to be sent
                raise stopped(self._lease.stop)

        try:
            found = running.collect(check)
            self._warnings += found.warnings
            entries, refusal = self._upload(found, check)
            if refusal is None:
                return entries
            problem = refused_upload(refusal)
        except Ended:
            return []
        except TooManyFiles:
            problem = Outcome("failed", "result_refused", _("There are too many files under results/."))
        except ApiError as error:
            problem = refused_upload(error)
        except Lost as error:
            problem = Outcome("failed", "engine_lost", error.message)
        except MingoraError as error:
            problem = Outcome("failed", "result_refused", error.message)
        except OSError as error:
            code = "disk_full" if error.errno == errno.ENOSPC else "result_refused"
            problem = Outcome("failed", code, _("The results can't be read: {reason}").format(reason=error))
        if outcome.outcome == "succeeded":
            outcome.outcome, outcome.code, outcome.message = problem.outcome, problem.code, problem.message
        else:
            self._warnings.append(problem.message)
        return entries

    def _upload(self, found: Collected, check: Callable[[], None]) -> tuple[list[dict[str, Any]], ApiError | None]:
        """The entries of what was sent, and why the first of the others was refused."""
        refusals: list[ApiError] = []
        if not found.files:
            return [], None

        def send() -> list[dict[str, Any]]:
            refusals.clear()
            return upload_files(
                self._link.transport,
                found.files,
                kind="result",
                progress=lambda _done, _all: check(),
                refused=lambda _file, error: refusals.append(error),
            )

        entries = self._link.persist(send, check)
        return entries, refusals[0] if refusals else None

    def _report(self, outcome: Outcome, log_bytes: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
        reason = None
        if outcome.code is not None:
            reason = {"code": outcome.code, "message": wire_text(outcome.message)}
        return {
            "leaseId": self._lease.id,
            "attempt": self._lease.attempt,
            "outcome": outcome.outcome,
            "reason": reason,
            "exitCode": outcome.exit.code,
            "signal": outcome.exit.signal,
            "logBytes": log_bytes,
            "results": entries,
            "usage": _usage(self._usage),
            "warnings": [wire_text(text) for text in self._warnings],
        }

    def _say_end(self, outcome: Outcome) -> None:
        job = self._grant.job_id
        if outcome.outcome == "succeeded":
            text = _("Job {job} succeeded.").format(job=job)
        elif outcome.outcome == "cancelled":
            text = _("Job {job} was cancelled.").format(job=job)
        else:
            text = _("Job {job} failed: {reason}").format(job=job, reason=outcome.message)
        self._link.console.event("job_ended", text, job=job, outcome=outcome.outcome, reason=outcome.code)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "cpuSeconds": usage.cpu_seconds,
        "memoryMiB": usage.memory_mib,
        "maxMemoryMiB": usage.max_memory_mib,
    }
