"""Turns know who asked for them and how much they changed, and a log is kept in pieces while it grows."""

import zlib

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns and the table, and move each stored log into it as a single piece."""
    for name in ("caller", "base_sha", "merge_base"):
        op.add_column("turns", sa.Column(name, sa.Text))
    for name in ("files", "additions", "deletions"):
        op.add_column("turns", sa.Column(name, sa.Integer))
    pieces = op.create_table(
        "log_pieces",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("starts_at", sa.BigInteger, primary_key=True),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    # One log at a time: each may have 16 MiB.
    whole = "SELECT content FROM turn_files WHERE run_id = :run_id AND number = :number AND kind = 'log'"
    connection = op.get_bind()
    for run_id, number in connection.execute(sa.text("SELECT run_id, number FROM turn_files WHERE kind = 'log'")).all():
        key = {"run_id": run_id, "number": number}
        content = connection.execute(sa.text(whole), key).scalar_one()
        ends_at = len(zlib.decompress(content))
        connection.execute(sa.insert(pieces), key | {"starts_at": 0, "ends_at": ends_at, "content": content})
    op.execute("DELETE FROM turn_files WHERE kind = 'log'")
