"""The first version. No step makes its tables: a new database gets the current ones."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing."""
