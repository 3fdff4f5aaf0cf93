"""The spec's writes as frozen values, made by forms and commands, and their answers; and the query of the run list."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, get_args
from unicodedata import category
from urllib.parse import quote, unquote

from msgspec import Struct, field
from msgspec.structs import replace

from app.engine.text import SafeText, first_line, safe_text
from storage.records import Action, ActionKind, Repository, Run

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
MARK: Final = "{action}"
"""A placeholder in a branch name or metadata, which the unique action id replaces."""
RULE: Final = "runwarden_automation"
"""The metadata key for the rule's name in runs that an automation started."""


class RunQuery(Struct, frozen=True):
    """The parameters of the list of runs (spec 4.2); the dates are inclusive."""

    status: str | None = None
    repository: Repository | None = None
    since: datetime | None = None
    until: datetime | None = None


ALL_RUNS: Final = RunQuery()


class Write(Struct, frozen=True):
    """A write: its address, its subject and its body."""

    kind: ClassVar[ActionKind]
    address: ClassVar[str]
    """The path below the base address, with `{}` for the field that is one of its segments."""
    segment: ClassVar[str] = ""
    """The name of that field; may be empty."""
    shown: ClassVar[tuple[str, ...]]
    """The fields that name the write's subject in a line."""

    @property
    def path(self) -> str:
        """Below the base address; `ValueError` if the field cannot be a segment, see `agent_segment`."""
        return self.address.format(agent_segment(getattr(self, self.segment)) if self.segment else "")

    @property
    def subject(self) -> str:
        """While the outcome for a subject is open, a second write waits. Empty if there is no such limit."""
        return ""

    def body(self) -> dict[str, Json]:
        """The JSON body; optional fields without a value are left out."""
        names = self.__struct_fields__
        required = names[: len(names) - len(self.__struct_defaults__)]
        values = {name: getattr(self, name) for name in names if name != self.segment}
        return {name: value for name, value in values.items() if name in required or value not in (None, "", {})}


class StartRun(Write, frozen=True):
    """POST /external/runs (spec 4.3)."""

    kind: ClassVar[ActionKind] = "run.start"
    shown: ClassVar = ("repository", "branch_name", "instructions")
    address: ClassVar = "/external/runs"
    instructions: str
    repository: Repository
    branch_name: str | None = None
    """If it is None, the service makes a default branch."""
    metadata: dict[str, Json] = field(default_factory=dict)

    def body(self) -> dict[str, Json]:
        """The JSON body, with the repository as the reference that the service gave."""
        reference = {"platform": self.repository.platform, "data": json.loads(self.repository.data_json)}
        return super().body() | {"repository": reference}


class ContinueRun(Write, frozen=True):
    """POST /external/runs with a run_id: the next turn of a conversation (spec 4.3)."""

    kind: ClassVar[ActionKind] = "run.continue"
    shown: ClassVar = ("run_id", "instructions")
    run_id: str
    instructions: str
    repository: Repository
    branch_name: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)
    start_from: Literal["patch", "branch"] | None = None
    """Whether the turn begins with the last turn's unpushed change (docs/dev/api.md), or None for its choice."""

    @property
    def path(self) -> str:
        """Below the base address, with a query if the extension is used."""
        if self.start_from is None:
            return StartRun.address
        return f"{StartRun.address}?start_from={self.start_from}"

    @property
    def subject(self) -> str:
        return self.run_id

    def body(self) -> dict[str, Json]:
        first = StartRun(self.instructions, self.repository, self.branch_name, self.metadata)
        return {**first.body(), "run_id": self.run_id}


class StartAgent(Write, frozen=True):
    """POST /external/agents/{name}/runs (spec 4.4)."""

    kind: ClassVar[ActionKind] = "agent.start"
    shown: ClassVar = ("name", "repository", "branch_name")
    address: ClassVar = "/external/agents/{}/runs"
    segment: ClassVar = "name"
    name: str
    repository: str
    """One of the spec's four forms: owner/repo, group/project, a full URL, or a configured name."""
    branch_name: str | None = None
    inputs: dict[str, Json] = field(default_factory=dict)


class CreateOrganization(Write, frozen=True):
    """POST /external/organizations (spec 4.1). Each success makes another organization."""

    kind: ClassVar[ActionKind] = "organization.create"
    shown: ClassVar = ("email", "offer_code")
    address: ClassVar = "/external/organizations"
    email: str
    offer_code: str | None = None
    """None stands for the standard trial."""

    @property
    def subject(self) -> str:
        """The email, without regard to case: blocked while an earlier attempt's outcome is unknown."""
        return self.email.strip().casefold()


class OnboardProject(Write, frozen=True):
    """POST /external/gitlab/projects: named but not described by the spec (4.6); idempotent."""

    kind: ClassVar[ActionKind] = "gitlab.onboard"
    shown: ClassVar = ("project_path", "project_id")
    address: ClassVar = "/external/gitlab/projects"
    project_path: str | None = None
    project_id: int | None = None
    """If both are given, the service uses the id."""


class CancelRun(Write, frozen=True):
    """POST /external/runs/{run_id}/cancel: an extension of the spec (docs/dev/api.md); idempotent."""

    kind: ClassVar[ActionKind] = "run.cancel"
    shown: ClassVar = ("run_id",)
    address: ClassVar = "/external/runs/{}/cancel"
    segment: ClassVar = "run_id"
    run_id: str


When = Literal["now", "end", "stop"]
"""When a message reaches the agent: immediately, after the turn, or after stopping the turn."""


class SayToRun(Write, frozen=True):
    """POST /external/runs/{run_id}/messages: an extension of the spec (docs/dev/api.md)."""

    kind: ClassVar[ActionKind] = "run.say"
    shown: ClassVar = ("run_id", "text")
    address: ClassVar = "/external/runs/{}/messages"
    segment: ClassVar = "run_id"
    run_id: str
    text: str
    when: When = "now"


class ResendInvitation(Write, frozen=True):
    """POST /external/invitations/{invitation_id}/resend: an extension; each mail voids the one before."""

    kind: ClassVar[ActionKind] = "invitation.resend"
    shown: ClassVar = ("invitation_id",)
    address: ClassVar = "/external/invitations/{}/resend"
    segment: ClassVar = "invitation_id"
    invitation_id: str


WriteRequest = (
    StartRun | ContinueRun | StartAgent | CreateOrganization | OnboardProject | CancelRun | SayToRun | ResendInvitation
)
_BY_KIND: Final[Mapping[ActionKind, Any]] = {each.kind: each for each in get_args(WriteRequest)}


def agent_segment(name: str) -> str:
    """An agent's name, or a run's id, as one path segment.

    A blank one, `.`, `..` and control characters raise `ValueError`: quoting does not make those safe.
    """
    if name.strip() in {"", ".", ".."} or any(category(c) == "Cc" for c in name):
        raise ValueError(f"{name!r} cannot be a name in a path.")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} cannot be a name in a path.") from error


def as_json(request: WriteRequest, action_id: str = MARK) -> str:
    """The request's body as the JSON text to store and send, with the action's id where requested."""
    return json.dumps(_with(request, MARK, action_id).body(), ensure_ascii=False, allow_nan=False)


def _with(request: WriteRequest, old: str, new: str) -> WriteRequest:
    """The request with a text replaced in its branch name and metadata."""
    if not isinstance(request, StartRun | ContinueRun):
        return request
    branch = request.branch_name and request.branch_name.replace(old, new)
    metadata = {
        name: value.replace(old, new) if isinstance(value, str) else value for name, value in request.metadata.items()
    }
    return replace(request, branch_name=branch, metadata=metadata)


def request_of(action: Action) -> WriteRequest:
    return request_from(action.kind, action.path, json.loads(action.body_json))


def request_sent(action: Action) -> WriteRequest | None:
    """The request that the action sent; None if another version of the program stored it."""
    try:
        return request_of(action)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def about(action: Action) -> SafeText:
    """The subject of a write, in a line."""
    if (request := request_sent(action)) is None:
        return safe_text(action.subject)
    values = (getattr(request, name) for name in request.shown)
    texts = (value.label if isinstance(value, Repository) else first_line(str(value)) for value in values if value)
    return safe_text("  ".join(texts), limit=300)


def request_from(kind: ActionKind, path: str, body: dict[str, Any]) -> WriteRequest:
    """The request with this path and body, as `path` and `body()` of a request of that kind gave them."""
    request_type = _BY_KIND[kind]
    fields = {name: body[name] for name in request_type.__struct_fields__ if name in body}
    if request_type.segment:
        fields[request_type.segment] = unquote(path.split("/")[-2])
    if kind in {"run.start", "run.continue"}:
        reference = body["repository"]
        data = reference["data"] if isinstance(reference["data"], dict) else {}
        fields["repository"] = Repository.of(str(reference["platform"]), data)
    start_from = path.partition("?start_from=")[2]
    if kind == "run.continue" and start_from in {"patch", "branch"}:
        fields["start_from"] = start_from
    request: WriteRequest = request_type(**fields)
    return request


def asked_of(action: Action) -> WriteRequest | None:
    """The request with a placeholder for the action's id, for a new action; None if it is another version's."""
    request = request_sent(action)
    return request and _with(request, action.action_id, MARK)


class Answer(Struct, frozen=True):
    """A usable answer to a write."""

    status: int
    """The HTTP status: 200, 201 or 202."""
    raw_json: str
    """The body as received."""
    result_id: str
    """The id of the run, execution, organization or invitation; the project's path."""
    run: Run | None = None
    """The run that was started, continued or cancelled."""
