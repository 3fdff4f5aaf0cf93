"""The tables, named as in the spec; instants are microseconds since 1970 (UTC)."""

from dataclasses import fields
from typing import Any, Final

import sqlalchemy as sa

VERSION: Final = 2

metadata = sa.MetaData()


def columns_of(table: sa.Table, record: Any) -> list[sa.Column[Any]]:
    """Return the columns that a record's fields are named after, in their order."""
    return [table.c[field.name] for field in fields(record)]


def _instant(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _text(name: str, *, nullable: bool = False, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable, primary_key=key)


def _owner(*, nullable: bool = False) -> sa.Column[str]:
    return sa.Column("organization_id", sa.ForeignKey("organizations.id", ondelete="CASCADE"), nullable=nullable)


meta = sa.Table("runwarden_meta", metadata, _text("key", key=True), _text("value"))

organizations = sa.Table(
    "organizations",
    metadata,
    _text("id", key=True),
    _text("name"),
    sa.Column("slug", sa.Text, nullable=False, unique=True),
    # No foreign key: the parent is attribution only (spec 2.2), and outlives the parent.
    _text("parent_id", nullable=True),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("entitlements", sa.JSON, nullable=False),
    _text("offer_code", nullable=True),
    _instant("created_at"),
)

invitations = sa.Table(
    "invitations",
    metadata,
    _text("id", key=True),
    _owner(),
    _text("email"),
    sa.Column("code_digest", sa.Text, nullable=False, unique=True),
    _instant("sent_at", nullable=True),
    _instant("expires_at"),
    _instant("accepted_at", nullable=True),
)

mails = sa.Table(
    "mails",
    metadata,
    sa.Column("invitation_id", sa.ForeignKey("invitations.id", ondelete="CASCADE"), primary_key=True),
    # In clear until the mail is sent, which cannot be written without it; then removed.
    _text("code", nullable=True),
    _text("state"),
    sa.Column("attempts", sa.Integer, nullable=False),
    _instant("due_at"),
    _text("failure", nullable=True),
    sa.Index("mails_due", "state", "due_at"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    _text("id", key=True),
    # No foreign key: a token whose organization is gone answers 404, as the spec says (7.1).
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    _text("alias", nullable=True),
    sa.Column("scopes", sa.JSON, nullable=False),
    _instant("created_at"),
    _instant("expires_at"),
    _instant("revoked_at", nullable=True),
)

offers = sa.Table(
    "offers",
    metadata,
    _text("code", key=True),
    _text("kind"),
    sa.Column("retired", sa.Boolean, nullable=False),
    _text("price", nullable=True),
)

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("organization_id", sa.ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    _text("signup_code", nullable=True),
    _text("signup_price", nullable=True),
    _instant("started_at", nullable=True),
    _text("granted_code", nullable=True),
)

hosts = sa.Table(
    "hosts",
    metadata,
    _text("id", key=True),
    _owner(),
    _text("platform"),
    _text("host"),
    _text("group", nullable=True),
    _text("probe"),
    _text("api_url", nullable=True),
    _text("clone_url", nullable=True),
    _text("token_env", nullable=True),
    _instant("connected_at"),
    sa.UniqueConstraint("organization_id", "platform"),
)

repositories = sa.Table(
    "repositories",
    metadata,
    _text("id", key=True),
    _owner(),
    _text("name"),
    _text("platform"),
    _text("path"),
    _text("path_key"),
    _text("url"),
    sa.Column("project_id", sa.BigInteger),
    sa.Column("webhook_configured", sa.Boolean, nullable=False, default=False),
    sa.UniqueConstraint("organization_id", "platform", "path_key"),
    sa.UniqueConstraint("organization_id", "name"),
)

agents = sa.Table(
    "agents",
    metadata,
    _text("id", key=True),
    _owner(nullable=True),
    _text("name"),
    sa.Column("argv", sa.JSON, nullable=False),
    sa.Column("timeout_s", sa.Float, nullable=False),
    sa.Column("network", sa.Boolean, nullable=False),
    sa.Column("environment", sa.JSON, nullable=False),
    sa.UniqueConstraint("organization_id", "name"),
)

runs = sa.Table(
    "runs",
    metadata,
    _text("id", key=True),
    _owner(),
    _text("agent"),
    _text("status"),
    _text("branch"),
    _text("platform"),
    _text("path"),
    _text("path_key"),
    _text("url"),
    sa.Column("metadata", sa.JSON),
    sa.Column("turn", sa.Integer, nullable=False),
    _instant("created_at"),
    _instant("updated_at"),
    sa.Index("runs_newest", "organization_id", "created_at", "id"),
    sa.Index("runs_by_status", "organization_id", "status", "created_at", "id"),
    sa.Index("runs_by_repository", "organization_id", "path_key", "created_at", "id"),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    _text("status"),
    _text("instructions"),
    sa.Column("inputs", sa.JSON, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    _text("executor", nullable=True),
    _instant("accepted_at"),
    _instant("dispatched_at", nullable=True),
    _instant("started_at", nullable=True),
    _instant("finished_at", nullable=True),
    _text("commit_sha", nullable=True),
    _text("summary", nullable=True),
    _text("failure", nullable=True),
    sa.Index("turns_waiting", "dispatched_at", "accepted_at"),
    sa.Index("turns_by_status", "status", "started_at"),
)

turn_files = sa.Table(
    "turn_files",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    _text("kind", key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

workers = sa.Table(
    "workers",
    metadata,
    _text("executor", key=True),
    _text("host"),
    _text("sandbox"),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),
    _instant("started_at"),
    _instant("seen_at"),
)

rate_limits = sa.Table(
    "rate_limits",
    metadata,
    # No foreign key: it is written every few requests, and a row without an owner does no harm.
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("remaining", sa.Float, nullable=False),
    _instant("counted_at"),
)
