"""Nodes as rows: registration, the list, pausing, removal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from mingora_common.clock import Clock
from mingora_common.db.engine import Database
from mingora_common.db.schema import leases, nodes, work_tokens
from mingora_common.errors import INVALID_TOKEN, NOT_FOUND, QUOTA_EXCEEDED, ServiceError
from mingora_common.ids import new_id
from mingora_scheduler.domain.attempt import NodeRemoved
from mingora_scheduler.domain.leases import WAITING
from mingora_scheduler.domain.placement import Node
from mingora_scheduler.store import attempts, tokens
from mingora_scheduler.store.changes import Changes
from mingora_scheduler.store.rows import Row

MAX_LISTED = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """What a worker says of itself; sizes in MiB. The fields are the table's columns."""

    node_key: str
    name: str
    version: str
    platform: str
    machine_id: str
    cpu: int
    memory_mib: int
    gpu: dict[str, Any] | None
    gpu_uuid: str | None
    runtimes: list[str]
    image_digest: str | None
    fingerprint: str | None
    network_group: str | None
    allow_cluster_network: int
    labels: dict[str, str]
    data: list[str]
    isolation: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered node; ``token`` only when a new one was made."""

    id: str
    name: str
    new: bool
    token: str | None
    token_id: str
    expires_at: int


class NodeStore:
    """Nodes of all accounts; every look-up names the account.

    Args:
        token_life: how long a node token lasts after the node was last heard from, milliseconds.
    """

    def __init__(self, database: Database, clock: Clock, token_life: int) -> None:
        self._database = database
        self._clock = clock
        self._token_life = token_life

    def register(self, account_id: str, tenant_id: str, record: Record, max_nodes: int) -> Registered:
        """By a user: make the node of this key, or bring it up to date, and give it a new token.

        Raises:
            ServiceError: ``quota_exceeded`` when a new node would be one too many.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            self._one_at_a_time(connection, account_id)
            key = (nodes.c.account_id == account_id, nodes.c.node_key == record.node_key)
            node_id = connection.execute(sa.select(nodes.c.id).where(*key)).scalar()
            new = node_id is None
            if node_id is None:
                self._check_quota(connection, account_id, max_nodes)
                node_id = new_id("node")
                ours = {"id": node_id, "account_id": account_id, "tenant_id": tenant_id, "registered_at": now}
                connection.execute(sa.insert(nodes).values(**ours, **asdict(record), last_seen_at=now))
            else:
                connection.execute(sa.update(nodes).where(*key).values(**asdict(record), last_seen_at=now))
            node = connection.execute(sa.select(nodes).where(nodes.c.id == node_id)).one()
            expires_at = now + self._token_life
            token, token_id = tokens.issue_node_token(connection, node, now, expires_at)
        return Registered(node_id, record.name, new, token, token_id, expires_at)

    def update(self, account_id: str, node_id: str, token_id: str, record: Record) -> Registered:
        """By the node itself: bring its record up to date; its token lives on.

        Raises:
            ServiceError: ``invalid_token`` when the key is another node's.
        """
        now = self._clock.now()
        with self._database.write() as connection:
            guard = (nodes.c.id == node_id, nodes.c.account_id == account_id, nodes.c.node_key == record.node_key)
            update = sa.update(nodes).where(*guard).values(**asdict(record), last_seen_at=now)
            if connection.execute(update).rowcount != 1:
                raise ServiceError(INVALID_TOKEN, "This token is another worker's. Log in and register this one.")
            tokens.renew(connection, token_id, now, now + self._token_life)
        return Registered(node_id, record.name, False, None, token_id, now + self._token_life)

    def listed(self, account_id: str) -> list[tuple[Row, Row | None]]:
        """The account's nodes by name, each with its live lease."""
        with self._database.read() as connection:
            query = sa.select(nodes).where(nodes.c.account_id == account_id)
            rows = connection.execute(query.order_by(nodes.c.name, nodes.c.id).limit(MAX_LISTED)).all()
            held = live_leases(connection, account_id)
        return [(row, held.get(row.id)) for row in rows]

    def pause(self, account_id: str, node_id: str, reason: str | None) -> None:
        """Set or lift (None) a node's pause; raises ``not_found``."""
        now = self._clock.now()
        values: dict[str, Any] = {"pause_reason": reason, "last_seen_at": now}
        if reason is not None:
            values["claimed_at"] = None
        with self._database.write() as connection:
            guard = (nodes.c.id == node_id, nodes.c.account_id == account_id)
            if connection.execute(sa.update(nodes).where(*guard).values(values)).rowcount != 1:
                raise ServiceError(NOT_FOUND)

    def remove(self, account_id: str, node_id: str) -> Changes:
        """Remove a node: its tokens are revoked and a running lease ends as lost; raises ``not_found``."""
        now, changes = self._clock.now(), Changes(topics={f"node:{node_id}"})
        with self._database.write() as connection:
            lease = live_lease(connection, node_id)
            loaded = attempts.load(connection, lease.attempt_id) if lease is not None else None
            if loaded is not None and lease is not None and lease.account_id == account_id:
                attempts.advance(connection, loaded, NodeRemoved(lease.rank), now, changes)
            guard = (nodes.c.id == node_id, nodes.c.account_id == account_id)
            if connection.execute(sa.delete(nodes).where(*guard)).rowcount != 1:
                raise ServiceError(NOT_FOUND)
            tokens.revoke(connection, work_tokens.c.node_id == node_id, now=now)
        return changes

    def _one_at_a_time(self, connection: sa.Connection, account_id: str) -> None:
        """PostgreSQL: registrations of one account follow each other, so that none slips past the limit."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext("nodes of " + account_id))))

    def _check_quota(self, connection: sa.Connection, account_id: str, max_nodes: int) -> None:
        count = sa.select(sa.func.count()).where(nodes.c.account_id == account_id)
        used = connection.execute(count).scalar_one()
        if used >= max_nodes:
            message = f"The account has {used} workers, its limit. Remove one: mingora rm NODE"
            raise ServiceError(QUOTA_EXCEEDED, message, limit="maxNodes", allowed=max_nodes, used=used)


def live_lease(connection: sa.Connection, node_id: str) -> Row | None:
    """The live lease of a node, unlocked."""
    query = sa.select(leases).where(leases.c.node_id == node_id, leases.c.ended_at.is_(None))
    return connection.execute(query).first()


def live_leases(connection: sa.Connection, account_id: str) -> dict[str, Row]:
    """The live leases of an account, by node."""
    columns = (
        leases.c.node_id, leases.c.job_id, leases.c.attempt, leases.c.rank, leases.c.state, leases.c.machine_id,
        leases.c.gpu_uuid,
    )  # fmt: skip
    query = sa.select(*columns).where(leases.c.account_id == account_id, leases.c.ended_at.is_(None))
    return {row.node_id: row for row in connection.execute(query)}


def as_node(row: Row, busy: bool, now: int) -> Node:
    """A row as scheduling sees it."""
    return Node(
        id=row.id,
        name=row.name,
        account_id=row.account_id,
        machine_id=row.machine_id,
        cpu=row.cpu,
        memory_mib=row.memory_mib,
        runtimes=frozenset(row.runtimes),
        gpu_uuid=row.gpu_uuid,
        network_group=row.network_group,
        allow_cluster_network=bool(row.allow_cluster_network),
        image_digest=row.image_digest,
        fingerprint=row.fingerprint,
        data=frozenset(row.data),
        waiting=row.claimed_at is not None and row.claimed_at > now - WAITING,
        pause_reason=row.pause_reason,
        busy=busy,
    )
