"""Actions: every write ever intended, its outcome and its result."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

_SpecKind = Literal["run.start", "run.continue", "agent.start", "organization.create", "gitlab.onboard"]
ActionKind = Literal[_SpecKind, "run.cancel", "run.say", "invitation.resend"]


class WriteKind(Struct, frozen=True):
    """One kind of write: its wording, the document with its result, and how users resolve an unknown outcome."""

    words: str
    """Its name in lists: `start run`."""
    made: str
    """Its result, which is also a key in a command's document."""
    fields: tuple[str, ...]
    """The fields of the result that a command prints; the first is its id."""
    done: str
    after: str
    """What happens next."""
    check: str
    """How to find out whether the write took effect."""
    id_name: str
    """What `resolve --created` takes, in words."""
    id_source: str
    """Where to find that id (spec 4)."""
    answers: tuple[str, str, str] = (
        "It took effect: I found the result",
        "It did not take effect: I checked",
        "Send it again: it may then exist twice",
    )
    """The three resolutions of an unknown outcome: created, not created, send it again."""
    confirmation: str = "send again"
    """What to type before it is sent again, if it has no subject."""
    is_listed: bool = False
    """Whether the service lists its results, so that they can be looked up."""
    extension: str = ""
    """What a service need not offer, in words: an extension of the spec (docs/dev/api.md). Empty: it is in the spec."""


_RUN: Final = ("run_id", "status", "branch_name", "outcome")
_AMONG_RUNS: Final = "Check whether it is in Runs, then resolve this."
_FROM_RUNS: Final = "Copy it from the Runs tab, or from: runwarden runs list"
WRITE_KINDS: Final[Mapping[ActionKind, WriteKind]] = {
    "run.start": WriteKind(
        words="start run",
        made="run",
        fields=_RUN,
        done="The run was started",
        after="It is in Runs, with its live status.",
        check=_AMONG_RUNS,
        id_name="a run's id",
        id_source=_FROM_RUNS,
        is_listed=True,
    ),
    "run.continue": WriteKind(
        words="continue run",
        made="run",
        fields=_RUN,
        done="The run was continued",
        after="Its status updates in Runs; your message is in its conversation.",
        check="Check whether the run was continued, then resolve this. Until then it cannot be continued again.",
        id_name="a run's id",
        id_source=_FROM_RUNS,
        is_listed=True,
    ),
    "agent.start": WriteKind(
        words="start agent",
        made="execution",
        fields=("execution_id", "agent_name", "repository", "status"),
        done="The service accepted the agent's start",
        after="The API does not show executions. If the service lists it as a run, it appears in Runs.",
        check=_AMONG_RUNS,
        id_name="an execution's id",
        id_source="No endpoint lists executions: look for the agent's run in the web application.",
    ),
    "organization.create": WriteKind(
        words="create organization",
        made="organization",
        fields=("organization_id", "organization_name", "organization_slug"),
        done="The organization was created",
        after="Organizations shows the state of its invitation, if the service reports it.",
        check="Check whether the organization exists, or whether the invitation arrived, then resolve this. Until then "
        "its address is blocked: a second attempt could create a second organization.",
        id_name="an organization's id",
        id_source="This service lists no organizations. If the invitation mail arrived, it was created: "
        "its id is in the new organization's settings.",
    ),
    "gitlab.onboard": WriteKind(
        words="onboard project",
        made="project",
        fields=("project_path", "status", "error"),
        done="The project was onboarded",
        after="Health shows GitLab once the service has connected to it.",
        check="Onboarding twice is harmless: resolve this as not created, then send it again.",
        id_name="a project's path",
        id_source="Write it as group/project.",
    ),
    "run.cancel": WriteKind(
        words="cancel run",
        made="run",
        fields=_RUN,
        done="The run was cancelled",
        after="Its agent stops within seconds; nothing of this turn is pushed.",
        check="Cancelling twice is harmless: send it again, or check whether the run has ended.",
        id_name="a run's id",
        id_source="It is the id of the run that was to be cancelled.",
        answers=("The run was cancelled", "It was not cancelled", "Cancel it again: harmless if it was cancelled"),
        confirmation="cancel again",
        extension="cancelling runs",
    ),
    "run.say": WriteKind(
        words="say to run",
        made="message",
        fields=("message_id", "when", "state"),
        done="The service has the message",
        after="Its agent gets it now if its program can take it, otherwise in the next turn.",
        check="Check whether the run's conversation has the message, then resolve this.",
        id_name="a message's id",
        id_source="Copy it from: runwarden runs view RUN --json",
        extension="messages to runs",
    ),
    "invitation.resend": WriteKind(
        words="resend invitation",
        made="invitation",
        fields=("invitation_id", "email", "state", "failure"),
        done="The invitation was sent again",
        after="The code of the mail before it no longer works.",
        check="Sending it once more does no harm: the newest mail is the one that counts.",
        id_name="an invitation's id",
        id_source="Copy it from: runwarden orgs list --json",
        answers=("The invitation was sent again", "It was not sent again", "Send it again: it may then arrive twice"),
        extension="resending invitations",
    ),
}

ActionState = Literal["prepared", "sending", "confirmed", "rejected", "unknown", "not_sent", "not_created"]
"""`prepared` and `sending` are in progress; `not_created` is the user's answer to `unknown`. The rest is final."""

SettledState = Literal["confirmed", "rejected", "unknown", "not_sent"]

Resolution = Literal["created", "not_created", "sent_again"]

Surface = Literal["console", "command", "automation"]
"""Which part of the program acted."""

OPEN_STATES: Final[frozenset[ActionState]] = frozenset({"prepared", "sending", "unknown"})
"""States that block a second action with the same subject."""

UNUSED_STATES: Final[frozenset[ActionState]] = frozenset({"not_sent", "rejected", "not_created"})
"""States that certainly had no effect: they leave their key free for another attempt."""


class Author(Struct, frozen=True):
    """Who acted, and from where; None: not recorded."""

    user: str | None = None
    """The operating system's login name."""
    host: str | None = None
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
    """None if no byte was ever sent."""
    settled_at: datetime | None = None
    """When the program knew its outcome, or that it is unknown; None: on its way."""
    error: ActionFailure | None = None
    response_json: str | None = None
    """The service's answer as received, if there was a usable one."""
    result_id: str | None = None
    """The run, execution, organization or project this made."""
    resolution: Resolution | None = None
    """The user's resolution of an unknown outcome."""
    superseded_by: str | None = None
    base_url: str | None = None
    """The address of the service; None if not recorded."""
    author: Author = Author()
    resolved_at: datetime | None = None
    """The time when the user resolved its unknown outcome; None: not resolved, or not recorded."""
    resolved_by: Author = Author()

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES and self.resolution is None


class UnknownSpan(Struct, frozen=True):
    """A period in which an action's outcome was unknown."""

    action: Action
    since: datetime
    until: datetime | None
    """None if the outcome is still unknown."""


class ActionFilter(Struct, frozen=True):
    """The requested actions; an empty collection, or None, does not restrict them."""

    kinds: Collection[ActionKind] = ()
    states: Collection[ActionState] = ()
    surfaces: Collection[Surface] = ()
    actor: str | None = None
    """A login name, with or without `@` and the machine's name, or an actor as the ledger has it."""
    since: datetime | None = None
    """The earliest time of the request, inclusive; so is `until`."""
    until: datetime | None = None
    search: str = ""
    """Words that must all occur in the instructions, the request or the answer; case is ignored."""
    is_unresolved: bool = False
    """Whether to include only unknown outcomes that the user has not resolved."""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.search.casefold().split())


class AuditEntry(Struct, frozen=True):
    """One step of an action, recorded permanently."""

    at: datetime
    action_id: str
    transition: str
    """`prepared`, `sending`, `confirmed`, `resolved_created`, `resolution_undone` and the like."""
    detail: str | None
    """Its result or cause: an id, or an error's kind."""
    author: Author
