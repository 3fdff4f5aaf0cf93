"""Deliveries of code hosts start runs: rules, the decision on each delivery, heads of forks; and a limit a day."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns and the table; commits that turns pushed before count as the service's own, too."""
    op.add_column("organizations", sa.Column("day_usd", sa.Float))
    op.add_column("organizations", sa.Column("day_tokens", sa.BigInteger))
    op.add_column("repositories", sa.Column("triggers", sa.JSON))
    op.add_column("repositories", sa.Column("webhook_secret_env", sa.Text))
    for name in ("head_ref", "head_sha"):
        op.add_column("runs", sa.Column(name, sa.Text))
    op.add_column("runs", sa.Column("is_restricted", sa.Boolean))
    op.add_column("turns", sa.Column("pushing_sha", sa.Text))
    op.execute("UPDATE turns SET pushing_sha = commit_sha")
    op.create_index("turns_by_push", "turns", ["pushing_sha"])
    owner = sa.ForeignKey("organizations.id", ondelete="CASCADE")
    texts = ("platform", "path_key", "delivery", "event", "result", "head_sha", "sender", "detail")
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("organization_id", sa.Text, owner, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in texts),
        sa.Column("rule", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("request", sa.JSON),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("organization_id", "platform", "delivery", "rule"),
    )
    of_number = ["organization_id", "platform", "path_key", "number", "received_at"]
    op.create_index("deliveries_of_number", "deliveries", of_number)
    op.create_index("deliveries_newest", "deliveries", ["received_at", "id"])
