"""The bodies of answers: strict about ids and the way to the next page, tolerant of the rest.

Unknown fields, statuses and platforms are kept as received, and so is a field of another type than the spec's. NaN, or
an integer beyond 64 bits where one is stored, makes the whole answer unusable.
"""

import json
from functools import lru_cache
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from typing_extensions import TypeAliasType

from app.api.errors import UnusableAnswerError
from app.api.requests import (
    Answer,
    CancelRun,
    ContinueRun,
    CreateOrganization,
    ResendInvitation,
    StartAgent,
    StartRun,
    WriteRequest,
)
from app.api.timestamps import timestamp
from storage.records import (
    Execution,
    HealthReport,
    HealthSample,
    Organization,
    Project,
    Repository,
    Run,
    RunPage,
)
from storage.records.health import NO_STATUS
from storage.records.results import Invitation

_COUNTS: Final = range(2**63)
_Plain = TypeAliasType(
    "_Plain", "bool | int | FiniteFloat | str | list[_Plain] | dict[str, _Plain] | None"
)  # NaN and Infinity are not JSON
_Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Id = Annotated[str, Field(min_length=1, max_length=1_000)]
_Body = TypeVar("_Body", bound="WireModel")
_STR: Final = frozenset({str})


class WireModel(BaseModel):
    """An object of an answer: its known fields, and every other one as received."""

    # Input stays out of errors: a body may hold what must not reach a log.
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)
    __pydantic_extra__: dict[str, _Plain]

    def as_received(self) -> str:
        """The object as JSON: every field that came, no field that did not."""
        # What `model_dump_json` calls: by far the most of it is spent on finding out its defaults.
        return self.__pydantic_serializer__.to_json(self, exclude_unset=True).decode()


class _RepositoryBody(WireModel):
    """Spec 2.3."""

    platform: str
    data: dict[str, _Plain] | None = None

    def record(self) -> Repository:
        """The repository as a record."""
        data = self.data or {}
        if set(map(type, data.values())) <= _STR:
            return _repository(self.platform, tuple(data.items()))
        return Repository.of(self.platform, data)


# A history names few repositories many times.
@lru_cache(maxsize=1_000)
def _repository(platform: str, data: tuple[tuple[str, object], ...]) -> Repository:
    return Repository.of(platform, dict(data))


class _RunBody(WireModel):
    """Spec 2.4."""

    run_id: _Id
    status: str
    branch_name: str | None = None
    repository: _RepositoryBody
    created_at: _Plain = None
    updated_at: _Plain = None

    def record(self) -> Run:
        """The run as the rest of the program knows it."""
        return Run(
            run_id=self.run_id,
            status=self.status,
            branch_name=self.branch_name or "",
            repository=self.repository.record(),
            created_at=timestamp(self.created_at),
            updated_at=timestamp(self.updated_at),
            raw_json=self.as_received(),
        )


class _OddRunBody(WireModel):
    """A run with an id, even if all other fields differ from spec 2.4."""

    run_id: _Id | _Int64
    status: _Plain = None
    branch_name: _Plain = None
    repository: _Plain = None
    created_at: _Plain = None
    updated_at: _Plain = None

    def record(self) -> Run:
        """The run, with its odd fields as JSON."""
        return Run(
            run_id=str(self.run_id),
            status=_shown(self.status),
            branch_name=_shown(self.branch_name),
            repository=_odd_repository(self.repository),
            created_at=timestamp(self.created_at),
            updated_at=timestamp(self.updated_at),
            raw_json=self.as_received(),
        )


def _shown(received: object) -> str:
    """A field as text, whatever its type; null and a missing one are empty."""
    if received is None or isinstance(received, str):
        return received or ""
    return _as_json(received)


def _as_json(received: object) -> str:
    return json.dumps(received, ensure_ascii=False, separators=(",", ":"))


def _odd_repository(received: object) -> Repository:
    if not isinstance(received, dict):
        return Repository.of("", received)
    data = received.get("data")
    return Repository.of(_shown(received.get("platform")), {} if data is None else data)


_RUN_BODIES: Final = (_RunBody, _OddRunBody)


class _WrittenRunBody(_OddRunBody):
    """A run as the answer to a write: the id alone is insisted on."""

    run_id: _Id


class _RunListBody(WireModel):
    """Spec 2.5."""

    runs: list[Annotated[_RunBody | _OddRunBody | _Plain, Field(union_mode="left_to_right")]]
    next_token: str | None = None
    total_count: _Plain = None


class _HealthBody(WireModel):
    """Spec 2.7."""

    code_hosting: dict[str, _Plain] | None = None


class _OrganizationBody(WireModel):
    """Spec 2.2; the id alone is insisted on: with it, the creation is certain."""

    organization_id: _Id
    organization_name: str | None = None
    organization_slug: str | None = None
    parent_organization_id: str | None = None


class _ExecutionBody(WireModel):
    """Spec 2.6; the id alone is insisted on."""

    agent_name: str | None = None
    execution_id: _Id
    repository: str | None = None
    status: str | None = None
    created_at: _Plain = None


class _ProjectBody(WireModel):
    """The answer to GitLab onboarding, by the design's decision (spec 4.6 names the endpoint only)."""

    success: bool
    project_path: str | None = None
    status: str | None = None
    webhook_configured: bool | None = None
    project_id: _Int64 | None = None
    error: str | None = None


def run_page(body: bytes) -> RunPage:
    """A page of the run list; entries without a usable id are counted, not kept.

    Raises:
        UnusableAnswerError: The body is not what spec 2.5 says.
    """
    page = read_body(_RunListBody, body, may_repair=True)
    runs = tuple([run.record() for run in page.runs if isinstance(run, _RUN_BODIES)])
    total = page.total_count if type(page.total_count) is int and page.total_count in _COUNTS else None
    return RunPage(runs, page.next_token or None, total, dropped=len(page.runs) - len(runs))


class InvitationBody(WireModel):
    """An invitation (docs/dev/api.md)."""

    invitation_id: str
    organization_id: str
    email: str
    state: str = ""
    sent_at: str | None = None
    expires_at: str | None = None
    accepted_at: str | None = None
    failure: str | None = None
    mail: str = ""

    def record(self) -> Invitation:
        """The invitation as a record."""
        return Invitation(
            invitation_id=self.invitation_id,
            organization_id=self.organization_id,
            email=self.email,
            state=self.state,
            sent_at=timestamp(self.sent_at),
            expires_at=timestamp(self.expires_at),
            accepted_at=timestamp(self.accepted_at),
            failure=self.failure,
            mail=self.mail,
        )


def health_report(body: bytes) -> HealthReport:
    """A health answer; a platform that is null is not connected, one without a status has `NO_STATUS`.

    Raises:
        UnusableAnswerError: The body is not what spec 2.7 says.
    """
    platforms = read_body(_HealthBody, body, may_repair=True).code_hosting or {}
    return HealthReport(tuple(_sample(name, found) for name, found in platforms.items() if found is not None))


def _sample(platform: str, received: object) -> HealthSample:
    """One platform of spec 2.7; a value that is not an object is taken as its status, and none is one, too."""
    found = received if isinstance(received, dict) else {"status": received}
    host, group = (None if found.get(name) is None else _shown(found[name]) for name in ("host", "group"))
    return HealthSample(platform, _shown(found.get("status")).strip() or NO_STATUS, host, group, _as_json(received))


def answer(request: WriteRequest, status: int, body: bytes) -> Answer:
    """The answer to a write, read as its request's kind has it.

    Raises:
        UnusableAnswerError: The body is not what the spec says; the write has probably been carried out.
    """
    match request:
        case StartRun() | ContinueRun() | CancelRun():
            run = read_body(_WrittenRunBody, body, status)
            return Answer(status, body.decode(), run=run.record())
        case StartAgent():
            execution = read_body(_ExecutionBody, body, status)
            return Answer(status, body.decode(), execution=_execution(execution, request))
        case ResendInvitation():
            invitation = read_body(InvitationBody, body, status)
            return Answer(status, body.decode(), invitation=invitation.record())
        case CreateOrganization():
            organization = read_body(_OrganizationBody, body, status)
            return Answer(status, body.decode(), organization=_organization(organization))
        case _:
            project = read_body(_ProjectBody, body, status)
            return Answer(status, body.decode(), project=_project(project, request.project_path))


def _execution(body: _ExecutionBody, request: StartAgent) -> Execution:
    return Execution(
        agent_name=body.agent_name or request.name,
        execution_id=body.execution_id,
        repository=body.repository or request.repository,
        status=body.status or "",
        created_at="" if body.created_at is None else str(body.created_at),
        raw_json=body.as_received(),
    )


def _organization(body: _OrganizationBody) -> Organization:
    return Organization(
        organization_id=body.organization_id,
        organization_name=body.organization_name or "",
        organization_slug=body.organization_slug or "",
        parent_organization_id=body.parent_organization_id or "",
        raw_json=body.as_received(),
    )


def _project(body: _ProjectBody, asked_for: str | None) -> Project:
    return Project(
        project_path=body.project_path or asked_for or "",
        status=body.status or "",
        success=body.success,
        webhook_configured=body.webhook_configured,
        project_id=body.project_id,
        error=body.error,
        raw_json=body.as_received(),
    )


def _without_half_pairs(body: bytes) -> bytes | None:
    r"""The JSON with U+FFFD instead of escapes such as `\ud800` without their other half; None: it has none."""
    if b"\\u" not in body:
        return None
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        return None
    repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return None if repaired == text else repaired.encode()


def read_body(model: type[_Body], body: bytes, status: int | None = None, *, may_repair: bool = False) -> _Body:
    """A body as a model; `may_repair`: even if one of its texts is no valid Unicode.

    Raises:
        UnusableAnswerError: It is not one.
    """
    try:
        try:
            return model.model_validate_json(body)
        except ValidationError:
            # Half of a surrogate pair in one field would hide a whole page.
            repaired = _without_half_pairs(body) if may_repair else None
            if repaired is None:
                raise
            return model.model_validate_json(repaired)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        location = ".".join(str(step) for step in first["loc"][:4])
        raise UnusableAnswerError(
            f"The service's answer cannot be read{f' at {location}' if location else ''}: {first['msg']}.",
            status=status,
        ) from error
