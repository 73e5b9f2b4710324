"""The migrations make the schema that the code states, on both engines; only owners write."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from support import FakeClock, Seed, bearer

from mingora_common.auth import TokenReader
from mingora_common.clock import DAY
from mingora_common.db import migrate, schema
from mingora_common.db.engine import Database, ForeignWriteError
from mingora_common.db.views import VIEWS
from mingora_common.errors import ServiceError


@pytest.mark.req("OPS-2")
def test_migrations_make_the_stated_schema(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, schema.metadata)
        views = set(sa.inspect(connection).get_view_names())
    engine.dispose()
    assert differences == []
    assert views == set(VIEWS)


@pytest.mark.req("OPS-2")
def test_migrating_again_changes_nothing_and_a_newer_database_is_refused(database_url: str) -> None:
    migrate.upgrade(database_url)
    migrate.check(database_url)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(migrate.SchemaError, match="newer"):
        migrate.upgrade(database_url)
    with pytest.raises(migrate.SchemaError, match="newer"):
        migrate.check(database_url)


@pytest.mark.req("OPS-2")
@pytest.mark.parametrize("table", list(schema.metadata.tables.values()), ids=lambda table: table.name)
def test_a_service_writes_only_its_own_tables(sqlite_url: str, table: sa.Table) -> None:
    for role in (schema.API, schema.BLOBSTORE, schema.SCHEDULER, None):
        database = Database(sqlite_url, role)
        if role == table.info["owner"]:
            with database.write() as connection:
                connection.execute(sa.delete(table))
        else:
            with pytest.raises(ForeignWriteError), database.write() as connection:
                connection.execute(sa.delete(table))
        database.close()


@pytest.mark.req("AUTH-3", "AUTH-4")
def test_a_token_is_verified_until_it_expires_or_is_revoked(database_url: str, seed: Seed, clock: FakeClock) -> None:
    database = Database(database_url, None)
    reader = TokenReader(database, clock)
    account = seed.account()
    lasting, revoked = seed.token(account), seed.token(account)
    assert reader.verify(bearer(lasting)["Authorization"]).account_id == account
    assert reader.verify(bearer(revoked)["Authorization"]).account_id == account
    seed.revoke(revoked)
    with pytest.raises(ServiceError):
        reader.verify(bearer(revoked)["Authorization"])
    clock.advance(DAY / 1000 - 1)
    assert reader.verify(bearer(lasting)["Authorization"]).kind == "user"
    clock.advance(1)
    for header in (bearer(lasting)["Authorization"], None, "Bearer ", "Basic x"):
        with pytest.raises(ServiceError) as caught:
            reader.verify(header)
        assert caught.value.kind.status == 401
    database.close()


@pytest.mark.req("AUTH-4", "AUTH-9")
def test_a_lease_token_dies_with_its_nodes_token(database_url: str, seed: Seed, clock: FakeClock) -> None:
    database = Database(database_url, None)
    reader = TokenReader(database, clock)
    account = seed.account()
    node_token = seed.work_token(account, "node_12345678")
    lease = seed.lease(account, "node_12345678", job_id="job_12345678")
    lease_token = seed.work_token(account, "node_12345678", lease_id=lease)
    caller = reader.verify(bearer(lease_token)["Authorization"])
    assert (caller.kind, caller.lease_id, caller.job_id) == ("lease", lease, "job_12345678")
    seed.revoke(node_token)
    with pytest.raises(ServiceError):
        reader.verify(bearer(lease_token)["Authorization"])
    database.close()
