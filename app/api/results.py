"""The results extension (docs/dev/api.md): its answers as records."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import Field

from app.api.errors import NotFoundError, NotOfferedError, RefusedError, UnusableAnswerError
from app.api.timestamps import timestamp
from app.api.transport import Reply
from app.api.wire import InvitationBody, WireModel, read_body
from storage.records.results import (
    SEVERITIES,
    AgentInput,
    Change,
    FailureFacts,
    Invitation,
    LogChunk,
    LogStep,
    ModelUsage,
    NamedAgent,
    OpenQuestion,
    PostingStatus,
    ReportedFinding,
    RunTurns,
    Turn,
)

_ABSENT: Final = frozenset({"run_not_found", "turn_not_found", "invitation_not_found"})
"""The extension's own 404 codes; any other 404 comes from a service without it."""
_NOT_OFFERED: Final = frozenset({404, 405, 501})
_LONGEST: Final = 1 << 62
_COMMIT_LENGTHS: Final = frozenset({40, 64})


class _UsageBody(WireModel):
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    unpriced_requests: int = 0
    list_prices_of: str | None = None


class _FindingBody(WireModel):
    path: str
    line: int | None = None
    title: str = ""
    severity: str = ""
    rule: str = ""
    message: str = ""
    suggestion: str = ""

    def record(self) -> ReportedFinding:
        """The finding, without an unknown severity or an impossible line."""
        severity = next((one for one in SEVERITIES if one == self.severity), None)
        line = self.line if self.line is not None and self.line > 0 else None
        return ReportedFinding(self.path, line, self.title, severity, self.rule, self.message, self.suggestion)


class _TurnBody(WireModel):
    """Tolerant: a turn is shown with all of its readable fields."""

    number: int
    instructions: str | None = None
    caller: str | None = None
    state: str | None = ""
    started_at: str | None = None
    ended_at: str | None = None
    outcome: str | None = None
    reason: str | None = None
    failure_kind: str | None = None
    commit: str | None = None
    summary: str | None = None
    question: str | None = None
    choices: tuple[str, ...] = ()
    files: int | None = None
    additions: int | None = None
    deletions: int | None = None
    from_turn: int | None = None
    usage: _UsageBody | None = None
    findings: list[_FindingBody] | None = None
    inputs: object = None

    def record(self) -> Turn:
        """The turn as a record."""
        return Turn(
            number=self.number,
            state=self.state or "",
            instructions=self.instructions,
            caller=self.caller,
            started_at=timestamp(self.started_at),
            ended_at=timestamp(self.ended_at),
            outcome=self.outcome,
            reason=self.reason,
            failure_kind=self.failure_kind,
            commit=_commit(self.commit),
            summary=self.summary,
            question=self.question,
            choices=self.choices,
            files=self.files,
            additions=self.additions,
            deletions=self.deletions,
            from_turn=self.from_turn,
            usage=None if self.usage is None else ModelUsage(**self.usage.model_dump()),
            findings=None if self.findings is None else tuple(each.record() for each in self.findings),
            inputs_json=json.dumps(self.inputs) if isinstance(self.inputs, dict) else None,
        )


class _QuestionBody(WireModel):
    run_id: str
    question: str
    choices: tuple[str, ...] = ()


class _QuestionsBody(WireModel):
    questions: tuple[_QuestionBody, ...]
    cancelled: tuple[str, ...] = ()


class _PostingBody(WireModel):
    kind: str = ""
    state: str = ""
    url: str | None = None
    reason: str | None = None

    def record(self) -> PostingStatus:
        """The posting, without an address that no browser should open."""
        is_web = (self.url or "").startswith(("https://", "http://"))
        return PostingStatus(self.kind, self.state, self.url if is_web else None, self.reason)


class _RunTurnsBody(WireModel):
    run_id: str
    agent: str | None = None
    turns: list[_TurnBody]
    postings: tuple[_PostingBody, ...] = ()
    budget_used: float | None = None
    url: str | None = None


class _InputBody(WireModel):
    type: str = "any"
    description: str = ""
    required: bool = False
    default: object = None
    choices: tuple[object, ...] = ()

    def record(self, name: str) -> AgentInput:
        """The input as a record; its default and choices as JSON."""
        default = None if self.default is None else as_json_text(self.default)
        choices = tuple(map(as_json_text, self.choices))
        return AgentInput(name, self.type, self.description, default, choices, is_required=self.required)


class _AgentBody(WireModel):
    name: str
    description: str = ""
    inputs: dict[str, _InputBody] = Field(default_factory=dict)

    def record(self) -> NamedAgent:
        """The agent as a record."""
        return NamedAgent(self.name, self.description, tuple(one.record(name) for name, one in self.inputs.items()))


class _AgentsBody(WireModel):
    agents: tuple[_AgentBody, ...]


def named_agents(reply: Reply) -> tuple[NamedAgent, ...]:
    """The agents that may be started, by name.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    return tuple(one.record() for one in read_body(_AgentsBody, reply.body).agents)


class _InvitationsBody(WireModel):
    invitations: tuple[InvitationBody, ...]


def invitations(reply: Reply) -> tuple[Invitation, ...]:
    """The invitations to organizations that ours created, newest first.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    return tuple(one.record() for one in read_body(_InvitationsBody, reply.body).invitations)


def failure_facts(reply: Reply) -> FailureFacts:
    """What agents ask, and which runs were cancelled, newest first.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    found = read_body(_QuestionsBody, reply.body)
    questions = tuple(OpenQuestion(one.run_id, one.question, one.choices) for one in found.questions)
    return FailureFacts(questions, found.cancelled)


def as_json_text(value: object) -> str:
    """A value as it is typed behind KEY=: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@contextmanager
def offered() -> Iterator[None]:
    """Distinguish a service without the extension from one without such a run or turn.

    Raises:
        NotOfferedError: The service does not have the extension.
    """
    try:
        yield
    except RefusedError as error:
        if error.status not in _NOT_OFFERED or (isinstance(error, NotFoundError) and error.error_code in _ABSENT):
            raise
        message = "This service does not offer results of runs."
        raise NotOfferedError(message, status=error.status, error_code=error.error_code) from error


def run_turns(reply: Reply) -> RunTurns:
    """A run's turns, oldest first.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    body = read_body(_RunTurnsBody, reply.body)
    turns = sorted((turn.record() for turn in body.turns), key=lambda turn: turn.number)
    postings = tuple(one.record() for one in body.postings)
    url = body.url if (body.url or "").startswith(("https://", "http://")) else None
    found = tuple(turns)
    return RunTurns(body.run_id, found, agent=body.agent, postings=postings, budget_used=body.budget_used, url=url)


class _StepBody(WireModel):
    kind: str
    text: str = ""
    at: str | None = None
    call: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    failed: bool = False

    def record(self) -> LogStep:
        """The step as a record."""
        return LogStep(self.kind, self.text, timestamp(self.at), self.call, self.seconds, self.tokens, self.failed)


class _StepsBody(WireModel):
    steps: tuple[_StepBody, ...]


def log_chunk(reply: Reply, asked: int = -1, before: int | None = None) -> LogChunk:
    """A piece of a log; `asked` is the requested offset, counted from the end if negative.

    `before` is where steps were to end; 0: at the log's end; None: no steps were requested.

    Raises:
        UnusableAnswerError: It does not tell its place, or reading on from there would never end.
    """
    offset, following, size = (_number(reply, name) for name in ("Offset", "Next", "Size"))
    is_ended = reply.headers.get("Runwarden-Log-Ended") == "true"
    steps, data = None, reply.body
    if reply.headers.get("Runwarden-Log-Form") == "steps":
        steps, data = tuple(one.record() for one in read_body(_StepsBody, reply.body).steps), b""
    is_more = bool(data or steps)
    if following < offset or (is_more and following == offset) or (asked >= 0 and offset != min(asked, size)):
        raise UnusableAnswerError("The service's answer goes backwards in the log.")
    if is_ended and not before and following == offset < size:
        raise UnusableAnswerError("The service's answer leaves out the end of the log.")
    if steps is not None and before and following != before:
        raise UnusableAnswerError("The service's answer does not end where it was asked to.")
    return LogChunk(offset, following, size, is_ended, data, steps)


def _number(reply: Reply, name: str) -> int:
    text = reply.headers.get(f"Runwarden-Log-{name}", "")
    if not (text.isascii() and text.isdecimal() and int(text[:20]) < _LONGEST):
        raise UnusableAnswerError(f"The service's answer does not say where it stands in the log ({name}).")
    return int(text)


def change(reply: Reply, turn: int | None) -> Change:
    """A change with its files, read from its patch.

    Raises:
        UnusableAnswerError: It is not a patch: something else answers at this path.
    """
    if not reply.headers.get("Content-Type", "").startswith("text/plain"):
        raise UnusableAnswerError("The service's answer is not a patch.", status=reply.status)
    base, head = (_commit(reply.headers.get(f"Runwarden-{name}")) for name in ("Base", "Head"))
    name = "merge base with the default branch" if turn is None else "the branch before the turn"
    return Change(base, head, name if base else "", (), reply.body, source="service")


def _commit(text: str | None) -> str | None:
    """A commit's full id; anything else counts as none: it becomes an argument of git's."""
    is_id = text is not None and len(text) in _COMMIT_LENGTHS and all(c in "0123456789abcdef" for c in text)
    return text if is_id else None
