"""An agent for all organizations exists once: a unique constraint takes two NULLs for different."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Keep the newest agent of each name, and make the index that keeps it the only one."""
    op.execute(
        "DELETE FROM agents WHERE organization_id IS NULL "
        "AND id NOT IN (SELECT max(id) FROM agents WHERE organization_id IS NULL GROUP BY name)"
    )
    for_all = sa.text("organization_id IS NULL")
    op.create_index(
        "agents_for_all",
        "agents",
        ["name"],
        unique=True,
        sqlite_where=for_all,
        postgresql_where=for_all,
        if_not_exists=True,
    )
