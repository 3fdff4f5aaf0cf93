"""At most one agent of a name serves all organizations: to the old constraint, two NULLs were different values."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Delete all but the newest agent of each name, and add an index that refuses a second."""
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
