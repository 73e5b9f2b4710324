"""What a node does under a lease: claim it, keep it alive, become ready, report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mingora_common.blobs import ObjectRef, Pins
from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import attempts as attempt_rows
from mingora_common.db.schema import leases, nodes
from mingora_common.db.views import job_status
from mingora_common.errors import INVALID_REQUEST, LEASE_LOST, LOG_INCOMPLETE, NODE_BUSY, NOT_FOUND, ServiceError
from mingora_scheduler.domain.attempt import (
    Attempt,
    Claimed,
    Event,
    RankState,
    Ready,
    Report,
    Reported,
    Started,
    State,
    stop_told,
)
from mingora_scheduler.domain.inputs import inputs_digest
from mingora_scheduler.domain.leases import LEASE_TOKEN_SLACK, LEASE_TTL
from mingora_scheduler.store import attempts, tokens
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.nodes import live_lease
from mingora_scheduler.store.rows import Row


@dataclass(frozen=True, slots=True)
class Holder:
    """Who speaks under which lease: all of it must match a live lease, or nothing changes."""

    account_id: str
    node_id: str
    lease_id: str
    attempt: int
    token_id: str


@dataclass(frozen=True, slots=True)
class Claim:
    """An open claim. The node's newest ``stamp`` is the one that counts."""

    account_id: str
    node_id: str
    token_id: str
    claim_id: str
    stamp: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A claimed lease, and the token that goes with it."""

    lease: Row
    ranks: int
    token: str
    spec: dict[str, Any]
    inputs: list[dict[str, Any]]
    request: str | None
    """The id of the request that the attempt comes from."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a rank is told: whether to start, and the reason to stop, if any."""

    start: bool
    stop: str | None
    started: bool

    @property
    def news(self) -> bool:
        """Whether there is something that the worker can't know yet."""
        return self.stop is not None or (self.start and not self.started)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node measured of its rank; unverified."""

    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which a rank is about to run: the profile of its container, if any, and what its owner should know."""

    isolation: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


class LeaseStore:
    """Leases, seen from their nodes.

    Args:
        token_life: how long a node token lasts after the node was last heard from, milliseconds.
    """

    def __init__(self, database: Database, clock: Clock, pins: Pins, token_life: int) -> None:
        self._database = database
        self._clock = clock
        self._pins = pins
        self._token_life = token_life

    # --- claim ---

    def open_claim(self, account_id: str, node_id: str, token_id: str, claim_id: str) -> Claim:
        """Write down that the node waits for work.

        A newer claim of the node supersedes an older one: the server can't see that a client went away, so the older
        may still wait for an answer that nobody reads.

        Raises:
            ServiceError: ``not_found``, or ``node_busy`` when it holds a lease under another claim.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            query = sa.select(nodes.c.claimed_at).where(nodes.c.id == node_id, nodes.c.account_id == account_id)
            node = connection.execute(query.with_for_update()).first()
            if node is None:
                raise ServiceError(NOT_FOUND)
            _refuse_other_claim(live_lease(connection, node_id), claim_id)
            stamp = max(now, (node.claimed_at or 0) + 1)
            values = {"last_seen_at": now, "claimed_at": stamp}
            connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(values))
            tokens.renew(connection, token_id, now, now + self._token_life)
        return Claim(account_id, node_id, token_id, claim_id, stamp)

    def take(self, claim: Claim, changes: Changes) -> Grant | None:
        """The lease reserved for this node, or given to this very claim before (with a new token).

        None without one, for a claim that a newer one has superseded, and for one whose token has been revoked since.
        """
        with self._database.read() as connection:
            lease = live_lease(connection, claim.node_id)
            exists = sa.select(nodes.c.id).where(nodes.c.id == claim.node_id, nodes.c.account_id == claim.account_id)
            if connection.execute(exists).first() is None:
                raise ServiceError(NOT_FOUND)
        if lease is None:
            return None
        with self._database.write() as connection:
            return self._take(connection, lease.id, lease.attempt_id, claim, changes)

    def _take(
        self, connection: sa.Connection, lease_id: str, attempt_id: str, claim: Claim, changes: Changes
    ) -> Grant | None:
        now = self._clock.now()
        loaded = attempts.load(connection, attempt_id)
        row = next((row for row in loaded.leases if row.id == lease_id), None) if loaded else None
        if loaded is None or row is None or row.ended_at is not None or row.expires_at <= now:
            return None
        # Locked, so that no newer claim comes between this look at the stamp and the lease.
        node = connection.execute(sa.select(nodes).where(nodes.c.id == row.node_id).with_for_update()).first()
        if node is None or node.claimed_at != claim.stamp or not tokens.is_live(connection, claim.token_id, now):
            return None
        _refuse_other_claim(row, claim.claim_id)
        job = connection.execute(sa.select(job_status).where(job_status.c.job_id == row.job_id)).first()
        if job is None:
            return None
        if row.claim_id is None:
            attempts.advance(connection, loaded, Claimed(row.rank), now, changes)
            guard = (leases.c.id == lease_id, leases.c.claim_id.is_(None))
            connection.execute(sa.update(leases).where(*guard).values(claim_id=claim.claim_id, claimed_at=now))
        # It waits no more: the next job is placed on it once it claims again.
        connection.execute(sa.update(nodes).where(nodes.c.id == node.id).values(claimed_at=None))
        token = tokens.issue_lease_token(connection, node, lease_id, now)
        return Grant(row, loaded.row.ranks, token, job.spec, job.inputs, loaded.row.detail.get("request"))

    # --- staying alive ---

    def ready(self, holder: Holder, digest: str, terms: Terms, changes: Changes) -> Orders:
        """Inputs are staged and verified; renews the lease. Idempotent: the first call's ``terms`` stand.

        Raises:
            ServiceError: ``lease_lost``; ``invalid_request`` when the digest isn't that of the job's inputs.
        """
        with self._database.write() as connection:
            lease = self._held(connection, holder)
            query = sa.select(job_status.c.inputs).where(job_status.c.job_id == lease.job_id)
            inputs = connection.execute(query).scalar()
            if inputs is None:
                raise ServiceError(LEASE_LOST)
            if inputs_digest(inputs) != digest:
                raise ServiceError(INVALID_REQUEST, "These aren't the job's inputs.", field="inputsDigest")
            values: dict[str, Any] = {}
            if lease.state == RankState.CLAIMED:
                self._advance(connection, lease, Ready(lease.rank, terms.warnings), changes)
                values = {"isolation": terms.isolation}
            self._renew(connection, holder, values)
            return self._orders(connection, holder)

    def beat(self, holder: Holder, usage: Usage | None, started: bool, changes: Changes) -> Orders:
        """A heartbeat: renews the lease. ``started``: the rank's process runs. Raises ``lease_lost``."""
        with self._database.write() as connection:
            lease = self._held(connection, holder)
            if started and lease.state != RankState.RUNNING:
                self._advance(connection, lease, Started(lease.rank), changes)
            self._renew(connection, holder, {"usage": usage.values} if usage is not None else {})
            return self._orders(connection, holder)

    def orders(self, holder: Holder) -> Orders:
        """What the rank is told now, without renewing; raises ``lease_lost`` once the lease has ended."""
        with self._database.read() as connection:
            return self._orders(connection, holder)

    def _held(self, connection: sa.Connection, holder: Holder) -> Row:
        lease = connection.execute(sa.select(leases).where(*guards(holder, self._clock.now()))).first()
        if lease is None:
            raise ServiceError(LEASE_LOST)
        return lease

    def _advance(self, connection: sa.Connection, lease: Row, event: Event, changes: Changes) -> Attempt:
        loaded = attempts.load(connection, lease.attempt_id)
        if loaded is None:
            raise ServiceError(LEASE_LOST)
        return attempts.advance(connection, loaded, event, self._clock.now(), changes)

    def _renew(self, connection: sa.Connection, holder: Holder, values: dict[str, Any]) -> None:
        now = self._clock.now()
        update = sa.update(leases).where(*guards(holder, now)).values(expires_at=now + LEASE_TTL, **values)
        if connection.execute(update).rowcount != 1:
            raise ServiceError(LEASE_LOST)
        connection.execute(sa.update(nodes).where(nodes.c.id == holder.node_id).values(last_seen_at=now))
        tokens.renew(connection, holder.token_id, now, now + LEASE_TTL + LEASE_TOKEN_SLACK)
        tokens.renew_node(connection, holder.node_id, now, now + self._token_life)

    def _orders(self, connection: sa.Connection, holder: Holder) -> Orders:
        query = (
            sa.select(leases.c.state, attempt_rows.c.state.label("attempt_state"), attempt_rows.c.reason_code)
            .join(attempt_rows, attempt_rows.c.id == leases.c.attempt_id)
            .where(*guards(holder, self._clock.now()))
        )
        row = connection.execute(query).first()
        if row is None:
            raise ServiceError(LEASE_LOST)
        stop = stop_told(row.attempt_state, row.reason_code)
        return Orders(row.attempt_state == State.RUNNING, stop, row.state == RankState.RUNNING)

    # --- report ---

    def report(self, holder: Holder, report: Report, log_bytes: int, digest: str, changes: Changes) -> str:
        """Commit a rank's end: its results are pinned first, then one compare-and-set. Returns the attempt's state.

        Raises:
            ServiceError: ``lease_lost``, ``log_incomplete``, ``input_missing`` (results that aren't there),
                ``unavailable`` (blobstore is away); nothing has changed then.
        """
        with self._database.read() as connection:
            lease = self._reportable(connection, holder, log_bytes, digest)
        if isinstance(lease, str):
            return lease
        if report.results:
            refs = {entry["objectId"]: entry for entry in report.results}
            objects = [ObjectRef(key, entry["sha256"], entry["size"]) for key, entry in sorted(refs.items())]
            self._pins.pin(lease.attempt_id, holder.account_id, objects)
        try:
            with self._database.write() as connection:
                loaded = attempts.load(connection, lease.attempt_id)
                again = self._reportable(connection, holder, log_bytes, digest)
                if loaded is None:
                    raise ServiceError(LEASE_LOST)
                if isinstance(again, str):
                    return again
                after = attempts.advance(connection, loaded, Reported(lease.rank, report), self._clock.now(), changes)
                connection.execute(sa.update(leases).where(leases.c.id == lease.id).values(report_digest=digest))
                return after.state.value
        except ServiceError as error:
            if error.kind is LEASE_LOST and report.results:
                self._release_unless_needed(lease.attempt_id)
            raise

    def _reportable(self, connection: sa.Connection, holder: Holder, log_bytes: int, digest: str) -> Row | str:
        """The live lease to report under, or the attempt's state when this very report has been taken already."""
        query = sa.select(leases).where(*_identity(holder))
        lease = connection.execute(query).first()
        if lease is not None and lease.report_digest == digest:
            return attempt_state(connection, lease.attempt_id)
        live = lease is not None and lease.ended_at is None and lease.state != RankState.RESERVED
        if lease is None or not live or lease.expires_at <= self._clock.now():
            raise ServiceError(LEASE_LOST)
        if lease.log_bytes != log_bytes:
            raise ServiceError(LOG_INCOMPLETE, acked=lease.log_bytes)
        return lease

    def reported_under(self, token: str) -> Row | None:
        """The lease that ended by a report under this token not long ago, and its attempt's state now."""
        with self._database.read() as connection:
            return tokens.reported_lease(connection, token, self._clock.now())

    def _release_unless_needed(self, attempt_id: str) -> None:
        """The lease ended while its results were being pinned: let them go, unless other ranks' hang on the pin."""
        needed = (leases.c.ended_at.is_(None)) | (leases.c.report_digest.is_not(None))
        with self._database.read() as connection:
            query = sa.select(leases.c.id).where(leases.c.attempt_id == attempt_id, needed).limit(1)
            if connection.execute(query).first() is not None:
                return
        self._pins.release(attempt_id)


def attempt_state(connection: sa.Connection, attempt_id: str) -> str:
    """The state of an attempt; raises ``lease_lost`` when it is gone."""
    state = connection.execute(sa.select(attempt_rows.c.state).where(attempt_rows.c.id == attempt_id)).scalar()
    if state is None:
        raise ServiceError(LEASE_LOST)
    return str(state)


def _identity(holder: Holder) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        leases.c.id == holder.lease_id,
        leases.c.attempt == holder.attempt,
        leases.c.node_id == holder.node_id,
        leases.c.account_id == holder.account_id,
    )


def guards(holder: Holder, now: int) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions of every write under a lease: identity, attempt, node, and that it was claimed and still lives."""
    live = (leases.c.ended_at.is_(None), leases.c.expires_at > now, leases.c.state != RankState.RESERVED.value)
    return (*_identity(holder), *live)


def _refuse_other_claim(lease: Row | None, claim_id: str) -> None:
    if lease is not None and lease.claim_id is not None and lease.claim_id != claim_id:
        raise ServiceError(NODE_BUSY)
