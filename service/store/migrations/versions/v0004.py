"""Protected branches."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column of patterns, and the table of default branches that were seen."""
    op.create_table(
        "default_branches",
        sa.Column("url", sa.Text, primary_key=True),
        sa.Column("branch", sa.Text, nullable=False),
        if_not_exists=True,
    )
    if "protected" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("repositories")}:
        op.add_column("repositories", sa.Column("protected", sa.JSON))
