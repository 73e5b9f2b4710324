"""What keeps a container's job in: proved by a node, and in force for a rank.

Revision: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("leases", "nodes"):
        op.add_column(table, sa.Column("isolation", sa.JSON(none_as_null=True), nullable=True))
    op.execute(
        """
        CREATE VIEW job_isolation AS SELECT attempt_id, rank, isolation FROM leases WHERE isolation IS NOT NULL
        """
    )


def downgrade() -> None:
    op.execute("DROP VIEW job_isolation")
    for table in ("nodes", "leases"):
        op.drop_column(table, "isolation")
