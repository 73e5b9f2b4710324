"""One lease's link to the platform: token, heartbeats, log, and calls repeated until they work or it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mingora.errors import ApiError, MingoraError
from mingora.transport import Transport
from mingora_worker.api import NodeApi, lease_gone, request_id, transient
from mingora_worker.backoff import Backoff
from mingora_worker.caller import TICK_SECONDS
from mingora_worker.console import Console
from mingora_worker.interrupt import Interrupt
from mingora_worker.lease import Lease
from mingora_worker.logs import Sender, Spool
from mingora_worker.state import LeaseRecord

T = TypeVar("T")
MAX_LOG_REPAIRS = 3

Connect = Callable[[str, "Callable[[float], object] | None"], Transport]
"""Makes a transport for a token; the second argument is what its retries wait with."""


class LeaseLost(Exception):
    """The lease is over: nothing may be reported."""


class Abandoned(Exception):
    """The worker was told twice to stop."""


class Link:
    """Made with a record of a live lease; `sent_at` is when the request that gave or renewed it was sent."""

    def __init__(
        self,
        connect: Connect,
        node_id: str,
        record: LeaseRecord,
        *,
        sent_at: float,
        console: Console,
        interrupt: Interrupt,
    ) -> None:
        self.console = console
        self.interrupt = interrupt
        self._connect, self._token = connect, record.token
        self._request_id = request_id(record.request_id)
        self._node_id = node_id
        self.transport = self._transport()
        self._request_id = console.request_id = self.transport.request_id
        self.api = NodeApi(self.transport, node_id)
        # Heartbeats and the log have connections that they close themselves: theirs may be waiting at the end.
        self._beats = self._transport()
        self.lease = Lease(
            NodeApi(self._beats, node_id),
            record.lease_id,
            record.attempt,
            sent_at=sent_at,
            ttl=record.ttl,
            on_failure=console.trouble,
        )
        self._sender: Sender | None = None
        self._spool: Spool | None = None

    def check(self) -> None:
        """Raises when the work must end without a report."""
        if self.interrupt.urgent:
            raise Abandoned
        if self.lease.lost:
            raise LeaseLost

    def pause(self, seconds: float, check: Callable[[], object] | None = None) -> None:
        """Sleeps, and raises as soon as `check` does."""
        until = self.lease.clock() + seconds
        while (left := until - self.lease.clock()) > 0:
            (check or self.check)()
            self.lease.wait(min(TICK_SECONDS, left))

    def persist(self, call: Callable[[], T], check: Callable[[], object] | None = None) -> T:
        """Repeats `call` while the failure may pass. Raises `LeaseLost`, what `check` raises, or the refusal."""
        backoff = Backoff()
        while True:
            (check or self.check)()
            try:
                return call()
            except MingoraError as error:
                if isinstance(error, ApiError) and error.code in {"lease_lost", "invalid_token"}:
                    self.lease.lose()
                    raise LeaseLost from error
                if not transient(error):
                    raise
                self.console.trouble(error)
                self.pause(backoff.failed(error), check)

    def keep(self) -> None:
        """Starts the heartbeats."""
        _in_thread("heartbeat", self.lease.run, self._beats)

    def renew(self) -> None:
        """One heartbeat that shows whether the lease lives. Raises what went wrong."""
        sent_at = self.lease.clock()
        lease = self.lease
        lease.accept(self.api.heartbeat(lease.id, lease.attempt, wait=0, started=False, usage=None), sent_at)

    def send_log(self, spool: Spool, *, resume: bool = False) -> None:
        """Starts sending. `resume`: the platform may have a part of it."""
        transport = self._transport()
        api, lease = NodeApi(transport, self._node_id), self.lease

        def put(offset: int, data: bytes, truncated: bool) -> int:
            try:
                return api.put_log(lease.id, lease.attempt, offset, data, truncated=truncated)
            except MingoraError as error:
                if lease_gone(error):
                    lease.lose()
                raise

        self._spool = spool
        self._sender = Sender(spool, put, resume=resume, on_failure=self.console.trouble)
        _in_thread("log", self._sender.run, transport)

    def drain_log(self) -> int:
        """Waits until the sealed log is acknowledged; returns how many bytes are."""
        sender = self._sender
        if sender is None:
            return 0
        while not sender.done.wait(TICK_SECONDS):
            self.check()
        self.check()
        return sender.acked

    def report(self, body: dict[str, Any]) -> None:
        """Reports until it is acknowledged. Raises the platform's refusal."""
        for _repair in range(MAX_LOG_REPAIRS):
            try:
                self.persist(lambda: self.api.report(body), self._check_report)
                self.lease.close()
                return
            except ApiError as error:
                if error.code != "log_incomplete" or self._spool is None:
                    raise
                self.send_log(self._spool, resume=True)
                body["logBytes"] = self.drain_log()
        raise LeaseLost

    def _check_report(self) -> None:
        """A report that was taken ends the lease: a heartbeat that is refused may mean that its answer was lost."""
        if self.interrupt.urgent:
            raise Abandoned
        if self.lease.expired:
            raise LeaseLost

    def _transport(self) -> Transport:
        transport = self._connect(self._token, self.pause)
        transport.request_id = self._request_id or transport.request_id
        return transport

    def close(self) -> None:
        self.console.request_id = None
        self.lease.close()
        if self._sender is not None:
            self._sender.stop()
        self.transport.close()


def _in_thread(name: str, work: Callable[[], None], transport: Transport) -> None:
    def run() -> None:
        with transport:
            work()

    threading.Thread(target=run, name=name, daemon=True).start()
