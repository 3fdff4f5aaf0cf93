"""Several workers, trials, and mails that are stored until they are sent."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables, and a refused mail for each invitation whose code was not kept."""
    # No worker on record can be alive: a migration has a single machine's database to itself.
    op.drop_table("workers")
    op.create_table(
        "workers",
        sa.Column("executor", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("sandbox", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "rate_limits",
        sa.Column("organization_id", sa.Text, primary_key=True),
        sa.Column("remaining", sa.Float, nullable=False),
        sa.Column("counted_at", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "turn_files",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    _make_what_late_databases_of_version_1_have()
    # Codes were not kept, so unsent mails cannot be sent: their recipients need a new invitation.
    op.execute(
        "INSERT INTO mails (invitation_id, state, attempts, due_at) "
        "SELECT id, CASE WHEN sent_at IS NULL THEN 'refused' ELSE 'sent' END, 1, 0 FROM invitations "
        "WHERE id NOT IN (SELECT invitation_id FROM mails)"
    )


def _make_what_late_databases_of_version_1_have() -> None:
    if "price" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("offers")}:
        op.add_column("offers", sa.Column("price", sa.Text))
    op.create_table(
        "trials",
        sa.Column("organization_id", sa.Text, sa.ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("signup_code", sa.Text),
        sa.Column("signup_price", sa.Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("granted_code", sa.Text),
        if_not_exists=True,
    )
    op.create_table(
        "mails",
        sa.Column("invitation_id", sa.Text, sa.ForeignKey("invitations.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("code", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("failure", sa.Text),
        if_not_exists=True,
    )
    op.create_index("mails_due", "mails", ["state", "due_at"], if_not_exists=True)
