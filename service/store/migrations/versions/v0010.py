"""Postings: what a code host is to show of a run is stored until it was posted."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table; nothing is posted for existing runs."""
    instants = ("wanted_at", "due_at", "claimed_until")
    op.create_table(
        "postings",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("wanted", sa.JSON, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in instants),
        sa.Column("posted_at", sa.BigInteger),
        sa.Column("failure", sa.Text),
        sa.Column("url", sa.Text),
        sa.Column("memory", sa.JSON),
    )
    op.create_index("postings_due", "postings", ["state", "due_at"])
