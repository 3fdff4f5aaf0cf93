"""The audit trail, deletions that survive a crash, and Alembic itself."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_IS_APPEND_ONLY = {
    "sqlite": """CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END""",
    "postgresql": """CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$;
        CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
        FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()""",
}


def upgrade() -> None:
    """Make the tables, and raise the number by which programs of version 4 and older refuse the database."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("target", sa.Text),
        sa.Column("organization_id", sa.Text),
        sa.Column("detail", sa.Text),
    )
    op.create_index("audit_newest", "audit", ["at", "id"])
    op.create_index("audit_of_organization", "audit", ["organization_id", "at", "id"])
    op.execute(_IS_APPEND_ONLY[op.get_bind().dialect.name])
    op.create_table(
        "deletions",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.BigInteger),
    )
    op.add_column("tokens", sa.Column("first_used_at", sa.BigInteger))
    op.execute("UPDATE runwarden_meta SET value = '5' WHERE key = 'schema_version'")
