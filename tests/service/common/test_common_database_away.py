"""The database goes away and comes back: 503 with Retry-After meanwhile, and then all works, without a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from scheduler_platform import V1, Platform, make_platform
from support import FakeClock, RecordedHints, Seed, bearer

from mingora_common.db.engine import Database
from mingora_common.wake import Waiters


@pytest.fixture
def server(postgres_url: str) -> Iterator[Callable[[str], None]]:
    """Say something to the PostgreSQL server beside the platform's own connections."""
    engine = sa.create_engine(sa.make_url(postgres_url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    name = sa.make_url(postgres_url).database

    def say(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(sa.text(statement.replace("NAME", str(name))))

    yield say
    say("ALTER DATABASE NAME ALLOW_CONNECTIONS true")
    engine.dispose()


@pytest.fixture
def platform(postgres_url: str, clock: FakeClock) -> Iterator[Platform]:
    seed = Seed(postgres_url, clock)
    platform = make_platform(postgres_url, seed, clock, RecordedHints(), Waiters(8))
    yield platform
    platform.database.close()
    seed.engine.dispose()


TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'"
SHUT = "ALTER DATABASE NAME ALLOW_CONNECTIONS false"
OPEN = "ALTER DATABASE NAME ALLOW_CONNECTIONS true"


def nodes(platform: Platform) -> Any:
    return platform.client.get(f"{V1}/nodes", headers=bearer(platform.user))


@pytest.mark.req("OPS-1")
@pytest.mark.engine("postgres")
def test_connections_that_were_cut_are_made_anew_unnoticed(platform: Platform, server: Callable[[str], None]) -> None:
    platform.worker()
    for _ in range(3):
        server(TERMINATE)
        assert nodes(platform).status_code == 200


@pytest.mark.req("OPS-1")
@pytest.mark.engine("postgres")
def test_a_server_that_is_away_is_503_and_then_all_works_again(
    platform: Platform, server: Callable[[str], None]
) -> None:
    worker = platform.worker()
    server(SHUT)
    server(TERMINATE)
    for answer in (nodes(platform), worker._post("claim", {"claimId": "claim-0123456789"}, worker.token)):
        assert answer.status_code == 503 and answer.get_json()["error"]["code"] == "unavailable"
        assert int(answer.headers["Retry-After"]) >= 1
    assert platform.client.get("/readyz").status_code == 503
    assert platform.client.get("/healthz").status_code == 200
    server(OPEN)
    assert nodes(platform).status_code == 200
    worker.claim(status=204)
    assert platform.client.get("/readyz").status_code == 200


@pytest.mark.req("OPS-1", "JOB-4")
@pytest.mark.engine("postgres")
def test_a_connection_that_breaks_in_the_middle_of_a_write_changes_nothing(
    platform: Platform, server: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mingora_scheduler.store import tokens

    worker = platform.worker()
    job = platform.seed.job(platform.account)
    platform.waiting(worker)
    renew = tokens.issue_lease_token
    cut = [True]

    def broken(*arguments: Any) -> str:
        if cut.pop():
            server(TERMINATE)
        return renew(*arguments)

    monkeypatch.setattr("mingora_scheduler.store.leases.tokens.issue_lease_token", broken)
    before = platform.dump()
    answer = worker._post("claim", {"claimId": "claim-0123456789"}, worker.token)
    assert answer.status_code == 503 and answer.headers["Retry-After"]
    platform.seed.engine.dispose()
    unclaimed = {name: rows for name, rows in platform.dump().items() if name not in ("nodes", "work_tokens")}
    assert unclaimed == {name: rows for name, rows in before.items() if name not in ("nodes", "work_tokens")}
    cut.append(False)
    worker.claim()
    assert platform.status(job).state == "reserved" and worker.ready().status_code == 200


@pytest.mark.req("OPS-1")
def test_nobody_at_the_address_is_503(clock: FakeClock, sqlite_url: str) -> None:
    seed = Seed(sqlite_url, clock)
    platform = make_platform(sqlite_url, seed, clock, RecordedHints(), Waiters(8))
    away = Database("postgresql+psycopg://mingora@127.0.0.1:1/mingora", None)
    platform.app.extensions["mingora_tokens"]._database = away
    answer = nodes(platform)
    assert answer.status_code == 503 and answer.headers["Retry-After"]
    away.close()
    platform.database.close()
    seed.engine.dispose()


@pytest.mark.req("OPS-2")
def test_a_damaged_file_is_503_and_no_fault_of_the_code(clock: FakeClock, sqlite_url: str) -> None:
    path = Path(str(sa.make_url(sqlite_url).database))
    seed = Seed(sqlite_url, clock)
    platform = make_platform(sqlite_url, seed, clock, RecordedHints(), Waiters(8))
    with seed.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    platform.database.close()
    seed.engine.dispose()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x99" * (len(data) - 4096)
    path.write_bytes(data)
    answer = nodes(platform)
    assert answer.status_code == 503 and answer.get_json()["error"]["retryable"] is True
    platform.database.close()
