"""The tables of the first version: found, never made, as a new database begins with today's."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing."""
