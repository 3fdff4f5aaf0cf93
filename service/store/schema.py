"""The tables, named as in the spec; instants are microseconds since 1970 (UTC).

A change needs a step in `migrations/versions` that gives older databases the same tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from types import NoneType
from typing import Annotated, Any, Final

import sqlalchemy as sa
from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy.schema import SchemaItem

from service.agents.options import AgentOptions, RepositorySetup
from service.rules import TriggerRule

VERSION: Final = 1
"""The newest step in `migrations/versions`."""

metadata = sa.MetaData()
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """A GitHub App as which the service acts: its tokens live an hour, and its commits are the App's."""

    __pydantic_config__ = ConfigDict(extra="forbid", hide_input_in_errors=True)

    id: Annotated[int, Field(gt=0)]
    key_file: Annotated[str, Field(min_length=1, max_length=200)]
    """The file with its private key (PEM)."""
    installation_id: Annotated[int, Field(gt=0)] | None = None
    """The installation's id; None: the App is installed once."""
    sign: bool = False
    """Whether GitHub's API makes the commits, which signs them."""


class _Json(sa.TypeDecorator[Any]):
    """JSON that is parsed into a type; default values are not stored, and NULL becomes `null()`."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, kind: Any, null: type = NoneType) -> None:
        super().__init__(none_as_null=True)
        self.kind, self.null = kind, null
        self._adapter = TypeAdapter(kind)

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> Any:
        return None if value is None else self._adapter.dump_python(value, mode="json", exclude_defaults=True)

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> Any:
        return self.null() if value is None else self._adapter.validate_python(value)


_TEXTS: Final = _Json(tuple[str, ...])
_FOR_ALL: Final = sa.text("organization_id IS NULL")


def _columns(kind: Any, *names: str, nullable: bool = False, key: bool = False) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=nullable, primary_key=key, autoincrement=False) for name in names)


_texts = partial(_columns, sa.Text)
_numbers = partial(_columns, sa.Integer)
_large = partial(_columns, sa.BigInteger)
"""Instants, among others."""


def _child_of(table: str, column: str, *, key: bool = True, nullable: bool = False) -> sa.Column[str]:
    of = sa.ForeignKey(f"{table}.id", ondelete="CASCADE")
    return sa.Column(column, of, primary_key=key, nullable=nullable)


_owner = partial(_child_of, "organizations", "organization_id", key=False)


def _table(name: str, *parts: SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *parts)


def _entity(name: str, *parts: SchemaItem) -> sa.Table:
    return _table(name, *_texts("id", key=True), *parts)


meta = _table("runwarden_meta", *_texts("key", key=True), *_texts("value"))

organizations = _entity(
    "organizations",
    *_texts("name"),
    sa.Column("slug", sa.Text, nullable=False, unique=True),
    # No foreign key: the parent is attribution only (spec 2.2), and outlives the parent.
    *_texts("parent_id", "offer_code", nullable=True),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("entitlements", _TEXTS, nullable=False),
    *_large("created_at"),
    sa.Column("day_usd", sa.Float),
    *_large("day_tokens", nullable=True),
)

invitations = _entity(
    "invitations",
    _owner(),
    *_texts("email", "role"),
    sa.Column("code_digest", sa.Text, nullable=False, unique=True),
    *_large("expires_at"),
    *_large("sent_at", "accepted_at", nullable=True),
    # In clear text, because the mail contains it; deleted once the mail is sent.
    *_texts("code", "failure", nullable=True),
    *_texts("mail"),
    *_numbers("attempts"),
    *_large("due_at"),
    sa.Index("mails_due", "mail", "due_at"),
)

tokens = _entity(
    "tokens",
    # No foreign key: a token whose organization is gone answers 404, as the spec says (7.1).
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    *_texts("alias", nullable=True),
    sa.Column("scopes", _TEXTS, nullable=False),
    *_large("created_at", "expires_at"),
    *_large("revoked_at", "first_used_at", "last_used_at", nullable=True),
)

members = _entity(
    "members",
    _owner(),
    *_texts("email", "role"),
    *_large("added_at"),
    sa.UniqueConstraint("organization_id", "email"),
    sa.Index("members_by_email", "email"),
)
"""Users who may sign in with their e-mail address, if the operator set that up."""

sessions = _table(
    "sessions",
    *_texts("digest", key=True),
    _owner(nullable=True),
    # Both NULL: the operator's session.
    _child_of("tokens", "token_id", key=False, nullable=True),
    _child_of("members", "member_id", key=False, nullable=True),
    *_large("opened_at", "seen_at"),
    sa.Index("sessions_by_age", "opened_at"),
)
"""Sessions of the web page, identified by a digest of the browser's cookie."""

offers = _table(
    "offers",
    *_texts("code", key=True),
    *_texts("kind"),
    sa.Column("retired", sa.Boolean, nullable=False),
    *_texts("price", nullable=True),
)

trials = _table(
    "trials",
    _child_of("organizations", "organization_id"),
    *_texts("signup_code", "signup_price", "granted_code", nullable=True),
    *_large("started_at", nullable=True),
)

hosts = _entity(
    "hosts",
    _owner(),
    *_texts("platform", "host", "probe"),
    # `token_told`: the day on which the token expires, according to the host itself.
    *_texts("group", "api_url", "clone_url", "token_env", "token_ends", "token_told", nullable=True),
    sa.Column("token_command", _TEXTS),
    sa.Column("app", _Json(GitHubApp)),
    sa.Column("rotate", sa.Boolean, nullable=False, default=False),
    *_texts("status", nullable=True),
    *_large("connected_at"),
    sa.UniqueConstraint("organization_id", "platform"),
)

host_tokens = _table(
    "host_tokens",
    *_texts("digest", key=True),
    *_texts("variable"),
    *_texts("sealed", "fault", nullable=True),
    *_large("asked_at", nullable=True),
    sa.Column("is_lost", sa.Boolean, nullable=False),
)

repositories = _entity(
    "repositories",
    _owner(),
    *_texts("name", "platform", "path", "path_key", "url"),
    *_large("project_id", nullable=True),
    sa.Column("webhook_configured", sa.Boolean, nullable=False, default=False),
    sa.Column("protected", _TEXTS),
    sa.Column("triggers", _Json(tuple[TriggerRule, ...], tuple)),
    *_texts("webhook_secret_env", nullable=True),
    sa.Column("setup", _Json(RepositorySetup)),
    sa.UniqueConstraint("organization_id", "platform", "path_key"),
    sa.UniqueConstraint("organization_id", "name"),
)

schedules = _table(
    "schedules",
    _child_of("repositories", "repository_id"),
    *_numbers("index", key=True),
    *_large("due_at"),
    sa.Index("schedules_due", "due_at"),
)
"""When each rule with a schedule is due next; `index` counts the repository's rules from 0."""

default_branches = _table("default_branches", *_texts("url", key=True), *_texts("branch"))

agents = _entity(
    "agents",
    _owner(nullable=True),
    *_texts("name"),
    *_columns(_TEXTS, "argv", "environment"),
    sa.Column("timeout_s", sa.Float, nullable=False),
    sa.Column("network", sa.Boolean, nullable=False),
    sa.Column("options", _Json(AgentOptions, AgentOptions)),
    sa.UniqueConstraint("organization_id", "name"),
    sa.Index("agents_for_all", "name", unique=True, sqlite_where=_FOR_ALL, postgresql_where=_FOR_ALL),
)

runs = _entity(
    "runs",
    _owner(),
    *_texts("agent", "status", "branch", "platform", "path", "path_key", "url"),
    sa.Column("metadata", sa.JSON),
    *_numbers("turn"),
    *_large("created_at", "updated_at"),
    *_texts("head_ref", "head_sha", nullable=True),
    sa.Column("is_restricted", sa.Boolean),
    sa.Index("runs_newest", "organization_id", "created_at", "id"),
    sa.Index("runs_by_status", "organization_id", "status", "created_at", "id"),
    # Shown to the operator only.
    sa.Index("runs_newest_of_all", "created_at", "id"),
    sa.Index("runs_of_all_by_status", "status", "created_at", "id"),
    sa.Index("runs_by_repository", "organization_id", "path_key", "created_at", "id"),
)

turns = _table(
    "turns",
    _child_of("runs", "run_id"),
    *_numbers("number", key=True),
    # Copied from the run, so that an index finds each organization's next turn.
    *_texts("organization_id", "status", "instructions"),
    sa.Column("inputs", sa.JSON, nullable=False),
    *_numbers("attempt"),
    sa.Column("pauses", sa.Integer, nullable=False, server_default="0"),
    # `due_at`: when a paused turn may start again.
    *_large("due_at", "waiting_since", nullable=True),
    *_large("accepted_at"),
    *_large("dispatched_at", "started_at", "finished_at", nullable=True),
    *_texts("executor", "commit_sha", "summary", "failure", "failure_kind", "trace_parent", "caller", nullable=True),
    # `tree_sha`: the pushed tree. Turns with the same tree made the same change.
    *_texts("base_sha", "merge_base", "tree_sha", nullable=True),
    *_numbers("files", "additions", "deletions", nullable=True),
    sa.Column("question", sa.JSON(none_as_null=True)),
    *_texts("agent", nullable=True),
    sa.Column("unavailable", sa.JSON(none_as_null=True)),
    *_numbers("from_turn", nullable=True),
    # Stored before the push: the code host reports the push before the turn ends.
    *_texts("pushing_sha", nullable=True),
    sa.Index("turns_by_status", "status", "started_at"),
    sa.Index("turns_by_push", "pushing_sha"),
    sa.Index("turns_by_tree", "tree_sha"),
)

WAITING: Final = turns.c.dispatched_at.is_(None) & turns.c.finished_at.is_(None)
"""The condition for an accepted turn that has no slot yet."""
IS_RUNNING: Final = turns.c.dispatched_at.is_not(None) & turns.c.finished_at.is_(None)
"""The condition for a turn that has a slot."""
TURN_AGENT: Final = sa.func.coalesce(turns.c.agent, runs.c.agent).label("agent")
"""The agent that does a turn, joined with its run."""
HAS_QUESTION: Final = turns.c.question.is_not(None)
CANCELLED: Final = "cancelled"
"""How the failure of a turn begins that a caller or the operator cancelled."""
# Spelled out: a database uses no index for a condition whose values it learns later.
_BEGINNING: Final = sa.func.substr(turns.c.failure, sa.literal_column("1"), sa.literal_column(str(len(CANCELLED))))
WAS_CANCELLED: Final = sa.literal_column(f"'{CANCELLED}'") == _BEGINNING
# Partial indexes keep the database from answering one query with the index meant for another. Their names never change.
for _name, _held, _keys in (
    ("turns_waiting", WAITING, ("organization_id", "accepted_at", "run_id")),
    ("turns_under_way", IS_RUNNING, ("finished_at", "run_id")),
    ("turns_by_last_place", turns.c.dispatched_at.is_not(None), ("organization_id", "dispatched_at")),
    ("turns_asking", HAS_QUESTION, ("organization_id", "finished_at")),
    ("turns_cancelled", WAS_CANCELLED, ("organization_id", "finished_at")),
    ("turns_by_end", turns.c.finished_at.is_not(None), ("finished_at",)),
):
    sa.Index(_name, *(turns.c[_key] for _key in _keys), sqlite_where=_held, postgresql_where=_held)

turn_files = _table(
    "turn_files",
    _child_of("runs", "run_id"),
    *_numbers("number", key=True),
    *_texts("kind", key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

messages = _table(
    "messages",
    _child_of("runs", "run_id"),
    *_texts("id", key=True),
    *_numbers("number"),
    *_texts("text", "timing", "state"),
    *_texts("caller", nullable=True),
    *_large("sent_at"),
)
"""What callers said to a run while it was active."""

artifacts = _table(
    "artifacts",
    _child_of("runs", "run_id"),
    *_numbers("number", key=True),
    *_texts("name", key=True),
    _owner(),
    *_large("size"),
    # None: a patch that is too large to show, which is stored as a patch.
    sa.Column("content", sa.LargeBinary),
    sa.Index("artifacts_of_organization", "organization_id", "size"),
)

FIGURES: Final = ("requests", "unpriced_requests", "input_tokens", "cached_tokens", "output_tokens", "micro_usd")
"""The columns that are summed."""

model_usage = _table(
    "model_usage",
    _child_of("runs", "run_id"),
    *_numbers("number", key=True),
    *_texts("model", key=True),
    # Owner and name, since an agent's row is replaced whenever it is configured again.
    *_texts("agent_key", key=True),
    *_texts("agent", "provider"),
    *_large(*FIGURES),
    *_texts("list_prices_of", nullable=True),
)

usage_days = _table(
    "usage_days",
    _child_of("organizations", "organization_id"),
    # Days since 1970 (UTC).
    *_large("day", key=True),
    *_texts("agent_key", "platform", "path_key", key=True),
    *_texts("agent", "path"),
    # A run, and a turn, counts where its first request does.
    *_large("runs", "turns", *FIGURES),
    *_texts("list_prices_of", nullable=True),
    sa.Index("usage_days_by_agent", "day", "agent_key"),
)
"""Daily sums of `model_usage`, which stay when runs are deleted."""

model_outages = _table("model_outages", *_texts("source", key=True), *_texts("shown"), *_large("since"))
"""Providers that did not answer the last request; all workers share this."""

deliveries = _entity(
    "deliveries",
    _owner(),
    *_texts("platform", "path_key", "delivery", "event", "result", "head_sha", "cause", "sender", "detail"),
    *_numbers("rule", "number"),
    sa.Column("is_issue", sa.Boolean, nullable=False),
    *_texts("agent", "run_id", nullable=True),
    sa.Column("request", sa.JSON(none_as_null=True)),
    # The code host's time of the change, since deliveries may arrive in another order.
    *_large("changed_at", "received_at"),
    sa.UniqueConstraint("organization_id", "platform", "delivery", "rule"),
    sa.Index("deliveries_of_number", "organization_id", "platform", "path_key", "number", "received_at"),
    sa.Index("deliveries_newest", "received_at", "id"),
    sa.Index("deliveries_by_event", "organization_id", "event", "platform", "path_key", "rule", "id"),
)

log_pieces = _table(
    "log_pieces",
    _child_of("runs", "run_id"),
    *_numbers("number", key=True),
    *_large("starts_at", key=True),
    *_large("ends_at"),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""Logs of services on PostgreSQL, which several machines share; compressed piece by piece."""

postings = _table(
    "postings",
    _child_of("runs", "run_id"),
    *_texts("kind", "subject", key=True),
    *_numbers("number", "version", "attempts"),
    sa.Column("wanted", sa.JSON, nullable=False),
    *_texts("state"),
    *_large("wanted_at", "due_at"),
    *_large("posted_at", nullable=True),
    *_texts("failure", "url", nullable=True),
    sa.Index("postings_due", "state", "due_at"),
)
"""Results to post on code hosts, with their state; posted after the push, and retried until that succeeds."""

event_endpoints = _entity(
    "event_endpoints",
    _owner(),
    # In clear text, because each delivery is signed with them.
    *_texts("url", "secret"),
    *_texts("old_secret", nullable=True),
    sa.Column("types", _TEXTS, nullable=False),
    sa.Column("allowed", _Json(tuple[Network, ...], tuple)),
    *_large("created_at"),
    *_large("rotated_at", "disabled_at", nullable=True),
    sa.Index("event_endpoints_of_organization", "organization_id"),
)

events = _entity(
    "events",
    _child_of("event_endpoints", "endpoint_id", key=False),
    _child_of("runs", "run_id", key=False, nullable=True),
    *_texts("type", "payload", "state"),
    *_numbers("attempts"),
    *_large("occurred_at", "wanted_at", "due_at"),
    *_large("delivered_at", nullable=True),
    *_texts("failure", nullable=True),
    sa.Index("events_due", "state", "due_at", "endpoint_id"),
    sa.Index("events_newest", "endpoint_id", "id"),
    sa.Index("events_of_run", "run_id"),
)
"""Events for endpoints, with their delivery state; retried until delivered or given up."""

workers = _table(
    "workers",
    *_texts("executor", key=True),
    *_texts("host", "sandbox"),
    *_numbers("pid", "concurrency", "at_work"),
    *_large("started_at", "seen_at"),
)

rate_limits = _table(
    "rate_limits",
    # No foreign key: rows are written every few requests, and one without an owner is harmless.
    *_texts("organization_id", key=True),
    sa.Column("remaining", sa.Float, nullable=False),
    *_large("counted_at"),
)

audit = _entity(
    "audit",
    *_large("at"),
    *_texts("actor", "action", "outcome"),
    # No foreign key: entries outlive the objects they name.
    *_texts("target", "organization_id", "detail", nullable=True),
    sa.Index("audit_newest", "at", "id"),
    sa.Index("audit_of_organization", "organization_id", "at", "id"),
)
for _dialect, _statement in {
    "sqlite": """CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END""",
    "postgresql": """CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$;
        CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
        FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()""",
}.items():
    _ddl = sa.DDL(_statement).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    sa.event.listen(audit, "after_create", _ddl)

deletions = _table("deletions", *_texts("kind", "id", key=True), *_large("requested_at"))
"""Deleted objects that may have left files in a data folder or entries in the queue."""
