"""Agents have options, and what their turns used of a model is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column and a table; existing agents have no options."""
    op.add_column("agents", sa.Column("options", sa.JSON))
    op.create_table(
        "model_usage",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("agent_key", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("micro_usd", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    op.create_index("model_usage_by_day", "model_usage", ["day", "agent_key"])
