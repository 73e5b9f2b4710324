"""The worker's life: register, clear up, then claim and run one job after another."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from mingora.errors import ApiError, MingoraError
from mingora.transport import Transport
from mingora_worker.api import WAIT_SECONDS, Grant, NodeApi, transient
from mingora_worker.attempt import Attempt
from mingora_worker.backoff import Backoff
from mingora_worker.caller import TICK_SECONDS, Caller
from mingora_worker.config import Config
from mingora_worker.console import Console
from mingora_worker.disk import Disk
from mingora_worker.interrupt import Interrupt
from mingora_worker.lease import IMMEDIATE_SECONDS, steady_clock
from mingora_worker.link import Link
from mingora_worker.recovery import recover, report_stopped
from mingora_worker.register import AGENT, Registrar
from mingora_worker.runtimes.base import Runtime
from mingora_worker.state import JobFolder, LeaseRecord, NodeRecord, Root
from mingora_worker.texts import _

Result = TypeVar("Result")
CLAIM_SECONDS = 15.0
DISK_SECONDS = 15.0


class Stopping(Exception):
    """The worker was asked to stop while it had no job."""


class Worker:
    """One node at work. `root` is open, `registrar` ready; `pause` of both raises `Stopping`.

    `prepare` makes the runtimes ready, once what a former worker left is reported; it gets what to call meanwhile.
    """

    def __init__(
        self,
        root: Root,
        config: Config,
        registrar: Registrar,
        prepare: Callable[[Callable[[], object]], Mapping[str, Runtime]],
        console: Console,
        interrupt: Interrupt,
    ) -> None:
        self._root = root
        self._config = config
        self._registrar = registrar
        self._prepare = prepare
        self._runtimes: Mapping[str, Runtime] = {}
        self._console = console
        self._interrupt = interrupt
        self._disk = Disk(root.path, config.max_disk)
        self._paused: bool | None = None
        self._node = NodeRecord("", "")
        self._api: NodeApi | None = None
        self._caller = Caller()

    def run(self) -> None:
        """Works until it is asked to stop, or after one job with --once."""
        try:
            known = self._root.node()
            if known is not None and known.id:
                known.ca_file = self._config.ca_file or known.ca_file
                self._node = known
                recover(self._root, self._connect, known.id, self._console, self._interrupt)
            self._registrar.need_login()
            self._runtimes = self._prepare(self._check)
            self._enter(self._registrar.begin())
            self._console.event("waiting", _("Waiting for jobs. Ctrl-C stops the worker."))
            while True:
                if self._one_step() and self._config.once:
                    return
        except Stopping:
            self._console.event("stopped", _("The worker has stopped."))

    def _one_step(self) -> bool:
        """Claims and runs a job if there is room and a job. Returns whether one was run."""
        self._check()
        try:
            if self._has_room():
                return self._next_job()
        except OSError as error:
            self._console.event("disk", _("The worker's folder fails: {reason}").format(reason=error))
        self.pause(DISK_SECONDS)
        return False

    def pause(self, seconds: float) -> None:
        """Sleeps; raises `Stopping` as soon as the worker is asked to stop."""
        until = steady_clock() + seconds
        wake = threading.Event()
        while True:
            self._check()
            left = until - steady_clock()
            if left <= 0:
                return
            wake.wait(min(TICK_SECONDS, left))

    def _enter(self, record: NodeRecord) -> None:
        if self._api is not None:
            self._api.transport.close()
        self._node = record
        self._api = NodeApi(self._connect(record.token, None), record.id)

    def _connect(self, token: str, sleep: Callable[[float], object] | None) -> Transport:
        return Transport(
            self._node.server, ca_file=self._node.ca_file, token=token, user_agent=AGENT, sleep=sleep or self.pause
        )

    # -- claiming ----------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Looks at disk and runtimes, and tells the platform and the person when that changes anything."""
        problems = (runtime.problem(self._check) for runtime in self._runtimes.values())
        problem = self._disk.problem() or next(filter(None, problems), None)
        if problem is None and self._registrar.outdated:  # the engine had to prove itself anew, and is another now
            self._enter(self._registrar.begin())
        if (problem is not None) != self._paused:
            self._call(lambda api: api.pause(problem))
            if problem is not None:
                self._console.event("paused", _("Paused: {reason}").format(reason=problem))
            elif self._paused:
                self._console.event("resumed", _("There is room again; claiming jobs."))
            self._paused = problem is not None
        return problem is None

    def _next_job(self) -> bool:
        """Claims, and runs what was granted. Returns whether there was a job."""
        claim_id = self._root.pending_claim() or secrets.token_urlsafe(24)
        self._root.save_claim(claim_id)
        granted = self._call(lambda api: self._claim(api, claim_id))
        if granted is None:
            return False
        grant, sent_at = granted
        if grant is None:
            self._root.forget_claim()
            waited = steady_clock() - sent_at
            if waited < IMMEDIATE_SECONDS:
                self.pause(CLAIM_SECONDS - waited)
            return False
        folder, record = self._take(grant, claim_id)
        self._attempt(grant, record, folder, sent_at)
        return True

    def _claim(self, api: NodeApi, claim_id: str) -> tuple[Grant | None, float] | None:
        """The answer to one claim and when it was asked; None when the node is busy."""
        sent_at = steady_clock()
        try:
            return self._caller.call(lambda: api.claim(claim_id, WAIT_SECONDS), self._check), sent_at
        except Stopping:
            self._settle(api, claim_id)
            raise
        except ApiError as error:
            if error.code != "node_busy":
                raise
            self._console.trouble(error)
            self._root.forget_claim()
            self.pause(CLAIM_SECONDS)
            return None

    def _check(self) -> None:
        if self._interrupt.requested:
            raise Stopping

    def _settle(self, api: NodeApi, claim_id: str) -> None:
        """Stops while a claim is open: a lease that it got after all is given up in order."""
        try:
            api.pause(_("The worker was stopped."))  # first, so that no job comes after the answer
            grant = api.claim(claim_id, 0)
        except MingoraError:
            return  # the claim stays on disk: the next start asks again
        if grant is not None:
            folder, record = self._take(grant, claim_id)
            report_stopped(folder, record, self._connect, self._node.id, self._console, self._interrupt)
            folder.remove()
        self._root.forget_claim()

    def _take(self, grant: Grant, claim_id: str) -> tuple[JobFolder, LeaseRecord]:
        """Writes the lease down before anything is done with it."""
        folder = self._root.job(grant.lease_id)
        folder.create()
        record = LeaseRecord(
            lease_id=grant.lease_id,
            attempt=grant.attempt,
            job_id=grant.job_id,
            claim_id=claim_id,
            token=grant.token,
            ttl=grant.ttl,
            log_cap=grant.log_cap,
            mark=secrets.token_hex(16),
            request_id=grant.request_id,
            runtime=str(grant.spec.get("runtime", "native")),
        )
        folder.save(record)
        self._root.forget_claim()
        return folder, record

    def _attempt(self, grant: Grant, record: LeaseRecord, folder: JobFolder, sent_at: float) -> None:
        link = Link(
            self._connect, self._node.id, record, sent_at=sent_at, console=self._console, interrupt=self._interrupt
        )
        attempt = Attempt(
            grant,
            record,
            folder,
            link,
            self._runtimes,
            data=self._config.data,
            gpu_index=self._config.gpu_index,
            within_budget=self._disk.within_limit,
        )
        with self._interrupt.job():
            attempt.run()
        if not folder.remove():
            self._console.event("left_behind", _("{path} could not be removed.").format(path=folder.path))

    def _call(self, call: Callable[[NodeApi], Result]) -> Result:
        """Repeats while the platform is away; registers again, once, when the node's token is refused."""
        backoff, renewed = Backoff(), False
        while True:
            assert self._api is not None
            try:
                result = call(self._api)
            except MingoraError as error:
                if isinstance(error, ApiError) and error.status in {401, 404} and not renewed:
                    renewed = True
                    self._enter(self._registrar.renew(self._node))
                elif transient(error):
                    self._console.trouble(error)
                    self.pause(backoff.failed(error))
                else:
                    raise
            else:
                self._console.relief()
                return result
