"""Alembic's environment: it runs on the connection that ``migrate.py`` hands over."""

from __future__ import annotations

from alembic import context

from mingora_common.db.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
