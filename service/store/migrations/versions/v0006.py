"""Turns know which request queued them, and can be read by when they ended."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add a column for the trace of a request, and an index for the metrics of turns."""
    op.add_column("turns", sa.Column("trace_parent", sa.Text))
    op.create_index("turns_by_end", "turns", ["finished_at"])
