"""What tests of several services share: a clock that is set by hand, accounts, and tokens, written straight to SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from mingora_common.auth import LEASE, NODE, SCOPES, USER, hash_token, new_token
from mingora_common.blobs import ObjectRef
from mingora_common.clock import DAY
from mingora_common.db import schema
from mingora_common.ids import new_id

START = 1_800_000_000_000  # 2027-01-15T08:00:00Z


class FakeClock:
    """A clock that moves only when told to; milliseconds."""

    def __init__(self, now: int = START) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += round(seconds * 1000)


@dataclass
class RecordedHints:
    """Hints that are written down instead of sent: ``(task, argument)``."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def place(self, account_id: str) -> None:
        self.sent.append(("place", account_id))

    def cancel(self, job_id: str) -> None:
        self.sent.append(("cancel", job_id))

    def purge(self, job_id: str) -> None:
        self.sent.append(("purge", job_id))

    def archive_log(self, attempt_id: str) -> None:
        self.sent.append(("archive_log", attempt_id))

    def count(self, **counts: int) -> None:
        self.counts.update(counts)


@dataclass
class RecordedPins:
    """Blobstore's pins in memory; ``missing`` object ids are refused like blobstore would."""

    held: dict[str, list[ObjectRef]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def pin(self, owner: str, account_id: str, objects: Sequence[ObjectRef]) -> None:
        from mingora_common.errors import INPUT_MISSING, ServiceError

        gone = [ref.id for ref in objects if ref.id in self.missing]
        if gone:
            raise ServiceError(INPUT_MISSING, objectIds=gone)
        self.held[owner] = list(objects)

    def release(self, owner: str) -> None:
        self.held.pop(owner, None)


class Seed:
    """Writes accounts, tokens, jobs and nodes straight into a migrated database."""

    def __init__(self, url: str, clock: FakeClock) -> None:
        self.engine = sa.create_engine(url)
        self.clock = clock

    def insert(self, table: sa.Table, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(table).values(**values))

    def tenant(self, name: str = "default") -> str:
        tenant_id = new_id("ten")
        self.insert(schema.tenants, id=tenant_id, name=name, created_at=self.clock.now())
        return tenant_id

    def account(self, name: str = "ali", tenant_id: str | None = None, **limits: int) -> str:
        """An account with the standard limits, changed by ``limits`` (column names)."""
        account_id = new_id("acc")
        tenant_id = tenant_id or self.tenant(f"tenant-of-{name}")
        self.insert(
            schema.accounts,
            id=account_id,
            tenant_id=tenant_id,
            name=name,
            password_hash="-",
            created_at=self.clock.now(),
        )
        standard = {
            "max_file_bytes": 8 << 20, "max_bytes": 64 << 20, "max_files": 1000, "max_jobs": 1000, "max_nodes": 200
        }  # fmt: skip
        self.insert(schema.account_limits, account_id=account_id, **{**standard, **limits})
        return account_id

    def tenant_of(self, account_id: str) -> str:
        with self.engine.begin() as connection:
            query = sa.select(schema.accounts.c.tenant_id).where(schema.accounts.c.id == account_id)
            return str(connection.execute(query).scalar_one())

    def token(self, account_id: str, scopes: tuple[str, ...] = SCOPES, ttl: int = DAY) -> str:
        """A user token, ``ttl`` in milliseconds."""
        token, hashed = new_token(USER)
        now = self.clock.now()
        self.insert(
            schema.tokens, id=new_id("tok"), account_id=account_id, hash=hashed, name="test", scopes=" ".join(scopes),
            created_at=now, expires_at=now + ttl,
        )  # fmt: skip
        return token

    def work_token(self, account_id: str, node_id: str, lease_id: str | None = None, ttl: int = 30 * DAY) -> str:
        """A node token, or a lease token when ``lease_id`` is given."""
        token, hashed = new_token(LEASE if lease_id else NODE)
        now = self.clock.now()
        self.insert(
            schema.work_tokens, id=new_id("tok"), kind=LEASE if lease_id else NODE, hash=hashed, account_id=account_id,
            tenant_id=self.tenant_of(account_id), node_id=node_id, lease_id=lease_id, name="test",
            created_at=now, expires_at=now + ttl,
        )  # fmt: skip
        return token

    def lease(self, account_id: str, node_id: str, job_id: str, **values: object) -> str:
        """A live lease of attempt 1, rank 0 (for services that only read leases through the views)."""
        lease_id, now = new_id("lease"), self.clock.now()
        row: dict[str, object] = {
            "id": lease_id, "attempt_id": new_id("att"), "job_id": job_id, "account_id": account_id,
            "node_id": node_id, "attempt": 1, "rank": 0, "state": "running", "machine_id": "m",
            "created_at": now, "expires_at": now + 60_000, "log_bytes": 0, "log_truncated": 0,
        }  # fmt: skip
        self.insert(schema.leases, **{**row, **values})
        return lease_id

    def job(self, account_id: str, key: str = "key", **values: object) -> str:
        """A job of one rank without inputs."""
        job_id = new_id("job")
        row: dict[str, object] = {
            "id": job_id, "account_id": account_id, "tenant_id": self.tenant_of(account_id), "idempotency_key": key,
            "fingerprint": "0" * 64, "name": "test", "priority": 0, "inputs": [], "created_at": self.clock.now(),
            "spec": {"schemaVersion": 1, "name": "test", "command": ["python", "main.py"]},
        }  # fmt: skip
        self.insert(schema.jobs, **{**row, **values})
        return job_id

    def revoke(self, token: str) -> None:
        """Revoke a token of any kind."""
        for table in (schema.tokens, schema.work_tokens):
            with self.engine.begin() as connection:
                connection.execute(
                    sa.update(table).where(table.c.hash == hash_token(token)).values(revoked_at=self.clock.now())
                )


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}
