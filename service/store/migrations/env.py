"""Alembic's environment: the migration runs in the transaction that the caller holds, lock included."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
