"""The tables, named as in the spec; instants are microseconds since 1970 (UTC).

A change needs a step in `migrations/versions` that gives older databases the same tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from types import NoneType
from typing import Annotated, Any, Final, get_args

import sqlalchemy as sa
from pydantic import ConfigDict, Field, TypeAdapter
from sqlalchemy.schema import SchemaItem

from service.agents.options import AgentOptions, RepositorySetup
from service.clock import Micros
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
        if value is None:
            return None
        return self._adapter.dump_python(value, mode="json", exclude_defaults=True)

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> Any:
        if value is None:
            return self.null()
        return self._adapter.validate_python(value)


_FOR_ALL: Final = sa.text("organization_id IS NULL")
Small = Annotated[int, "of 32 bits"]
_KINDS: Final[Mapping[Any, Any]] = {
    str: sa.Text,
    int: sa.BigInteger,
    Small: sa.Integer,
    float: sa.Float,
    bool: sa.Boolean,
    bytes: sa.LargeBinary,
    tuple[str, ...]: _Json(tuple[str, ...]),
}


def _columns(*, primary_key: bool = False, **kinds: Any) -> Iterator[sa.Column[Any]]:
    """Yield the columns of these names, with a type of `_KINDS` or SQLAlchemy's; they hold NULL if it allows None."""
    for name, kind in kinds.items():
        nullable = NoneType in get_args(kind)
        plain = get_args(kind)[0] if nullable else kind
        column_type = _KINDS.get(plain, plain)
        yield sa.Column(name, column_type, nullable=nullable, primary_key=primary_key, autoincrement=False)


_key = partial(_columns, primary_key=True)


def _child_of(table: str, column: str, *, key: bool = True, nullable: bool = False) -> sa.Column[str]:
    of = sa.ForeignKey(f"{table}.id", ondelete="CASCADE")
    return sa.Column(column, of, primary_key=key, nullable=nullable)


_owner = partial(_child_of, "organizations", "organization_id", key=False)


def _table(name: str, *parts: SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *parts)


def _entity(name: str, *parts: SchemaItem) -> sa.Table:
    return _table(name, *_key(id=str), *parts)


meta = _table("runwarden_meta", *_key(key=str), *_columns(value=str))

organizations = _entity(
    "organizations",
    *_columns(name=str),
    sa.Column("slug", sa.Text, nullable=False, unique=True),
    # No foreign key: the parent is attribution only (spec 2.2), and outlives the parent.
    *_columns(parent_id=str | None, offer_code=str | None, active=bool, entitlements=tuple[str, ...]),
    *_columns(created_at=Micros, day_usd=float | None, day_tokens=int | None),
)

invitations = _entity(
    "invitations",
    _owner(),
    *_columns(email=str, role=str),
    sa.Column("code_digest", sa.Text, nullable=False, unique=True),
    *_columns(expires_at=Micros, sent_at=Micros | None, accepted_at=Micros | None),
    # In clear text, because the mail contains it; deleted once the mail is sent.
    *_columns(code=str | None, failure=str | None, mail=str, attempts=Small, due_at=Micros),
    sa.Index("mails_due", "mail", "due_at"),
)

tokens = _entity(
    "tokens",
    # No foreign key: a token whose organization is gone answers 404, as the spec says (7.1).
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    *_columns(alias=str | None, scopes=tuple[str, ...], created_at=Micros, expires_at=Micros),
    *_columns(revoked_at=Micros | None, first_used_at=Micros | None, last_used_at=Micros | None),
)

members = _entity(
    "members",
    _owner(),
    *_columns(email=str, role=str, added_at=Micros),
    sa.UniqueConstraint("organization_id", "email"),
    sa.Index("members_by_email", "email"),
)

sessions = _table(
    "sessions",
    *_key(digest=str),
    _owner(nullable=True),
    # Both NULL: the operator's session.
    _child_of("tokens", "token_id", key=False, nullable=True),
    _child_of("members", "member_id", key=False, nullable=True),
    *_columns(opened_at=Micros, seen_at=Micros),
    sa.Index("sessions_by_age", "opened_at"),
)

offers = _table("offers", *_key(code=str), *_columns(kind=str, retired=bool, price=str | None))

trials = _table(
    "trials",
    _child_of("organizations", "organization_id"),
    *_columns(signup_code=str | None, signup_price=str | None, granted_code=str | None, started_at=Micros | None),
)

hosts = _entity(
    "hosts",
    _owner(),
    # `token_told`: the day on which the token expires, according to the host itself.
    *_columns(platform=str, host=str, probe=str, group=str | None, api_url=str | None, clone_url=str | None),
    *_columns(token_env=str | None, token_ends=str | None, token_told=str | None, token_command=tuple[str, ...] | None),
    sa.Column("app", _Json(GitHubApp)),
    sa.Column("rotate", sa.Boolean, nullable=False, default=False),
    *_columns(status=str | None, connected_at=Micros),
    sa.UniqueConstraint("organization_id", "platform"),
)

host_tokens = _table(
    "host_tokens",
    *_key(digest=str),
    *_columns(variable=str, sealed=str | None, fault=str | None, asked_at=Micros | None, is_lost=bool),
)

repositories = _entity(
    "repositories",
    _owner(),
    *_columns(name=str, platform=str, path=str, path_key=str, url=str, project_id=int | None),
    sa.Column("webhook_configured", sa.Boolean, nullable=False, default=False),
    *_columns(protected=tuple[str, ...] | None),
    sa.Column("triggers", _Json(tuple[TriggerRule, ...], tuple)),
    *_columns(webhook_secret_env=str | None),
    sa.Column("setup", _Json(RepositorySetup)),
    sa.UniqueConstraint("organization_id", "platform", "path_key"),
    sa.UniqueConstraint("organization_id", "name"),
)

schedules = _table(
    "schedules",
    _child_of("repositories", "repository_id"),
    *_key(index=Small),
    *_columns(due_at=Micros),
    sa.Index("schedules_due", "due_at"),
)

default_branches = _table("default_branches", *_key(url=str), *_columns(branch=str))

agents = _entity(
    "agents",
    _owner(nullable=True),
    *_columns(name=str, argv=tuple[str, ...], environment=tuple[str, ...], timeout_s=float, network=bool),
    sa.Column("options", _Json(AgentOptions, AgentOptions)),
    sa.UniqueConstraint("organization_id", "name"),
    sa.Index("agents_for_all", "name", unique=True, sqlite_where=_FOR_ALL, postgresql_where=_FOR_ALL),
)

runs = _entity(
    "runs",
    _owner(),
    *_columns(agent=str, status=str, branch=str, platform=str, path=str, path_key=str, url=str),
    sa.Column("metadata", sa.JSON),
    *_columns(turn=Small, created_at=Micros, updated_at=Micros),
    *_columns(head_ref=str | None, head_sha=str | None, is_restricted=bool | None),
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
    *_key(number=Small),
    # `organization_id`: copied from the run, so that an index finds each organization's next turn.
    *_columns(organization_id=str, status=str, instructions=str, inputs=sa.JSON, attempt=Small),
    sa.Column("pauses", sa.Integer, nullable=False, server_default="0"),
    # `due_at`: when a paused turn may start again.
    *_columns(due_at=Micros | None, waiting_since=Micros | None, accepted_at=Micros, dispatched_at=Micros | None),
    *_columns(started_at=Micros | None, finished_at=Micros | None, executor=str | None, commit_sha=str | None),
    *_columns(summary=str | None, failure=str | None, failure_kind=str | None, trace_parent=str | None),
    # `tree_sha`: the pushed tree. Turns with the same tree made the same change.
    *_columns(caller=str | None, base_sha=str | None, merge_base=str | None, tree_sha=str | None),
    *_columns(files=Small | None, additions=Small | None, deletions=Small | None),
    sa.Column("question", sa.JSON(none_as_null=True)),
    *_columns(agent=str | None),
    sa.Column("unavailable", sa.JSON(none_as_null=True)),
    # `pushing_sha` is stored before the push: the code host reports the push before the turn ends.
    *_columns(from_turn=Small | None, pushing_sha=str | None),
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

turn_files = _table("turn_files", _child_of("runs", "run_id"), *_key(number=Small, kind=str), *_columns(content=bytes))

messages = _table(
    "messages",
    _child_of("runs", "run_id"),
    *_key(id=str),
    *_columns(number=Small, text=str, timing=str, state=str, caller=str | None, sent_at=Micros),
)

artifacts = _table(
    "artifacts",
    _child_of("runs", "run_id"),
    *_key(number=Small, name=str),
    _owner(),
    # None: a patch that is too large to show, which is stored as a patch.
    *_columns(size=int, content=bytes | None),
    sa.Index("artifacts_of_organization", "organization_id", "size"),
)

FIGURES: Final = ("requests", "unpriced_requests", "input_tokens", "cached_tokens", "output_tokens", "micro_usd")
"""The columns that are summed."""
_FIGURES: Final[dict[str, Any]] = dict.fromkeys(FIGURES, int)

model_usage = _table(
    "model_usage",
    _child_of("runs", "run_id"),
    # `agent_key`: owner and name, since an agent's row is replaced whenever it is configured again.
    *_key(number=Small, model=str, agent_key=str),
    *_columns(agent=str, provider=str, **_FIGURES, list_prices_of=str | None),
)

usage_days = _table(
    "usage_days",
    _child_of("organizations", "organization_id"),
    # Days since 1970 (UTC).
    *_key(day=int, agent_key=str, platform=str, path_key=str),
    # A run, and a turn, counts where its first request does.
    *_columns(agent=str, path=str, runs=int, turns=int, **_FIGURES, list_prices_of=str | None),
    sa.Index("usage_days_by_agent", "day", "agent_key"),
)
"""Daily sums of `model_usage`, which stay when runs are deleted."""

model_outages = _table("model_outages", *_key(source=str), *_columns(shown=str, since=Micros))

deliveries = _entity(
    "deliveries",
    _owner(),
    *_columns(platform=str, path_key=str, delivery=str, event=str, result=str, head_sha=str, cause=str, sender=str),
    *_columns(detail=str, rule=Small, number=Small, is_issue=bool, agent=str | None, run_id=str | None),
    sa.Column("request", sa.JSON(none_as_null=True)),
    # `changed_at` is the code host's time of the change, since deliveries may arrive in another order.
    *_columns(changed_at=Micros, received_at=Micros),
    sa.UniqueConstraint("organization_id", "platform", "delivery", "rule"),
    sa.Index("deliveries_of_number", "organization_id", "platform", "path_key", "number", "received_at"),
    sa.Index("deliveries_newest", "received_at", "id"),
    sa.Index("deliveries_by_event", "organization_id", "event", "platform", "path_key", "rule", "id"),
)

log_pieces = _table(
    "log_pieces",
    _child_of("runs", "run_id"),
    *_key(number=Small, starts_at=int),
    *_columns(ends_at=int, content=bytes),
)

postings = _table(
    "postings",
    _child_of("runs", "run_id"),
    *_key(kind=str, subject=str),
    *_columns(number=Small, version=Small, attempts=Small, wanted=sa.JSON, state=str, wanted_at=Micros, due_at=Micros),
    *_columns(posted_at=Micros | None, failure=str | None, url=str | None),
    sa.Index("postings_due", "state", "due_at"),
)

event_endpoints = _entity(
    "event_endpoints",
    _owner(),
    # The secrets are in clear text, because each delivery is signed with them.
    *_columns(url=str, secret=str, old_secret=str | None, types=tuple[str, ...]),
    sa.Column("allowed", _Json(tuple[Network, ...], tuple)),
    *_columns(created_at=Micros, rotated_at=Micros | None, disabled_at=Micros | None),
    sa.Index("event_endpoints_of_organization", "organization_id"),
)

events = _entity(
    "events",
    _child_of("event_endpoints", "endpoint_id", key=False),
    _child_of("runs", "run_id", key=False, nullable=True),
    *_columns(type=str, payload=str, state=str, attempts=Small, occurred_at=Micros, wanted_at=Micros, due_at=Micros),
    *_columns(delivered_at=Micros | None, failure=str | None),
    sa.Index("events_due", "state", "due_at", "endpoint_id"),
    sa.Index("events_newest", "endpoint_id", "id"),
    sa.Index("events_of_run", "run_id"),
)

workers = _table(
    "workers",
    *_key(executor=str),
    *_columns(host=str, sandbox=str, pid=Small, concurrency=Small, at_work=Small, started_at=Micros, seen_at=Micros),
)

# No foreign key: rows are written every few requests, and one without an owner is harmless.
rate_limits = _table("rate_limits", *_key(organization_id=str), *_columns(remaining=float, counted_at=Micros))

audit = _entity(
    "audit",
    *_columns(at=Micros, actor=str, action=str, outcome=str),
    # No foreign key: entries outlive the objects they name.
    *_columns(target=str | None, organization_id=str | None, detail=str | None),
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

deletions = _table("deletions", *_key(kind=str, id=str), *_columns(requested_at=Micros))
"""Deleted objects that may have left files in a data folder or entries in the queue."""
