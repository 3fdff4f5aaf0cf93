"""Actions: every write ever intended, its outcome, and what it created."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

ActionKind = Literal[
    "run.start",
    "run.continue",
    "agent.start",
    "organization.create",
    "gitlab.onboard",
    "run.cancel",
    "invitation.resend",
]

KIND_WORDS: Final[dict[str, str]] = {
    "run.start": "start run",
    "run.continue": "continue run",
    "agent.start": "start agent",
    "organization.create": "create organization",
    "gitlab.onboard": "onboard project",
    "run.cancel": "cancel run",
    "invitation.resend": "resend invitation",
}
"""What people read for an `ActionKind`."""

ActionState = Literal["prepared", "sending", "confirmed", "rejected", "unknown", "not_sent", "not_created"]
"""`prepared` and `sending` are in progress; `not_created` is a person's answer to `unknown`; all but these three are
final."""

Resolution = Literal["created", "not_created", "sent_again"]

Surface = Literal["console", "command", "automation"]
"""Which part of the program acted."""

OPEN_STATES: Final[frozenset[ActionState]] = frozenset({"prepared", "sending", "unknown"})
"""States that block a second action with the same subject."""

INVITATION_LIFETIME: Final = timedelta(days=30)
"""How long the administrator's invitation to a new organization holds (spec 3)."""

UNUSED_STATES: Final[frozenset[ActionState]] = frozenset({"not_sent", "rejected", "not_created"})
"""States that certainly had no effect: they leave their key free for another attempt."""


class Author(Struct, frozen=True):
    """Who acted, and from where; None: not recorded."""

    user: str | None = None
    """The operating system's login name."""
    host: str | None = None
    """The machine's name."""
    surface: Surface | None = None

    @property
    def name(self) -> str:
        """The person on the machine, `ann@desk`; empty: not recorded."""
        return "@".join(filter(None, (self.user, self.host)))


class ActionFailure(Struct, frozen=True):
    """Why an action is not confirmed."""

    kind: str
    """An `ApiError.kind`, or `crashed` where the process that sent it died."""
    message: str
    http_status: int | None = None
    error_code: str | None = None


class Action(Struct, frozen=True):
    """One entry of the ledger."""

    action_id: str
    kind: ActionKind
    subject: str
    """What must not happen twice by accident: the email, or the continued run; empty: nothing is blocked."""
    key: str
    """Two processes with the same key send once; an action that certainly had no effect leaves it free."""
    path: str
    """The request's path below the base address."""
    body_json: str
    """The request's body, exactly as sent."""
    actor: str
    """Who asked: `console`, `cli`, `bot:<rule>`, with the login name."""
    state: ActionState
    created_at: datetime
    sending_at: datetime | None = None
    """None: no byte of it was ever sent."""
    settled_at: datetime | None = None
    """When the program knew its outcome, or that it is unknown; None: on its way."""
    error: ActionFailure | None = None
    response_json: str | None = None
    """The service's answer as received, where there was a usable one."""
    result_id: str | None = None
    """The run, execution, organization or project this made."""
    resolution: Resolution | None = None
    """The user's resolution of an unknown outcome."""
    superseded_by: str | None = None
    """The action that sent this one again on purpose."""
    base_url: str | None = None
    """The service it went to. None: not recorded, as in the next one."""
    author: Author = Author()
    resolved_at: datetime | None = None
    """When a person resolved its unknown outcome; None: as `resolution`."""
    resolved_by: Author = Author()

    @property
    def is_open(self) -> bool:
        """Whether the outcome is still open, for the program or for a person."""
        return self.state in OPEN_STATES and self.resolution is None


class UnknownSpan(Struct, frozen=True):
    """A time in which an action's outcome was unknown."""

    action: Action
    since: datetime
    until: datetime | None
    """None: it still is."""


class ActionFilter(Struct, frozen=True):
    """The requested actions; an empty collection, or None, does not restrict them."""

    kinds: Collection[ActionKind] = ()
    states: Collection[ActionState] = ()
    surfaces: Collection[Surface] = ()
    actor: str | None = None
    """A login name, with or without `@` and the machine's name, or an actor as the ledger has it."""
    since: datetime | None = None
    """When it was asked for, inclusive; so is `until`."""
    until: datetime | None = None


class AuditEntry(Struct, frozen=True):
    """One step of an action, as it stays on record for good."""

    at: datetime
    action_id: str
    transition: str
    """`prepared`, `sending`, `confirmed`, `resolved_created`, `resolution_undone` and the like."""
    detail: str | None
    """Its result or cause: an id, or an error's kind."""
    author: Author


class Organization(Struct, frozen=True):
    """A child organization."""

    organization_id: str
    organization_name: str
    organization_slug: str
    parent_organization_id: str
    raw_json: str
    """As received."""


class Project(Struct, frozen=True):
    """The service's answer about the project."""

    project_path: str
    status: str
    """As received: onboarded, already_connected or failed are known."""
    success: bool
    webhook_configured: bool | None
    """None: the service did not say."""
    project_id: int | None
    error: str | None
    raw_json: str


class Execution(Struct, frozen=True):
    """A named agent's execution, accepted (spec 2.6); no endpoint reads it back."""

    agent_name: str
    execution_id: str
    repository: str
    status: str
    created_at: str
    """As received."""
    raw_json: str
