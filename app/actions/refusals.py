"""Refusals: why a request is not sent, and problems in its fields, found before anything is prepared or sent."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from app.api.requests import (
    RULE,
    ContinueRun,
    CreateOrganization,
    Json,
    OnboardProject,
    SayToRun,
    StartAgent,
    StartRun,
    WriteRequest,
    agent_segment,
    as_json,
)
from storage import RunwardenError
from storage.records import Action, ActionKind

MAX_EMAIL: Final = 254
"""Characters an address may have (RFC 5321's path of 256 less its brackets)."""
MAX_MESSAGE: Final = 20_000
MAX_INTEGER: Final = 2**63
_EMAIL: Final = re.compile(r"[^\s@,;<>()\[\]\\\"]+@[^\s@.,;<>()\[\]\\\"]+(\.[^\s@.,;<>()\[\]\\\"]+)+")
_PATH_FIXES: Final[Mapping[ActionKind, str]] = {
    "agent.start": "Name an agent of the service, not '.', '..' or control characters.",
    "run.cancel": "Name the run to cancel.",
    "run.say": "Name the run.",
    "invitation.resend": "Name the invitation to send again.",
}
"""What to do about a value that cannot be part of the path."""
_REF_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")


class FieldProblem(Struct, frozen=True):
    """A field that cannot be sent as it is."""

    field: str
    message: str
    """The problem and its fix."""


def problems(request: WriteRequest) -> tuple[FieldProblem, ...]:
    """All problems of the request; empty if it can be sent."""
    faults: list[FieldProblem] = []
    if request.segment:
        try:
            agent_segment(getattr(request, request.segment))
        except ValueError:
            faults.append(FieldProblem(request.segment, _PATH_FIXES[request.kind]))
    match request:
        case StartRun() | ContinueRun():
            if not request.instructions.strip():
                faults.append(FieldProblem("instructions", "Describe the agent's task."))
            faults += _json("instructions", request.instructions)
            faults += _branch(request.branch_name)
            faults += _json("metadata", request.metadata)
            if isinstance(request, ContinueRun) and not request.run_id.strip():
                faults.append(FieldProblem("run_id", "Name the run to continue."))
        case StartAgent():
            if not request.repository.strip():
                message = "Name the repository: owner/repo, group/project, a URL, or a configured name."
                faults.append(FieldProblem("repository", message))
            faults += _line("repository", request.repository)
            faults += _branch(request.branch_name)
            faults += _json("inputs", request.inputs)
        case CreateOrganization():
            email = request.email
            if len(email) > MAX_EMAIL or not email.isprintable() or not _EMAIL.fullmatch(email):
                faults.append(FieldProblem("email", "Give one email address, such as admin@example.com."))
            faults += _json("email", request.email)
            faults += _line("offer_code", request.offer_code or "")
        case SayToRun():
            if not request.text.strip():
                faults.append(FieldProblem("text", "Say what the agent should know."))
            if len(request.text) > MAX_MESSAGE:
                faults.append(FieldProblem("text", f"A message has at most {MAX_MESSAGE:,} characters."))
            faults += _json("text", request.text)
        case OnboardProject():
            if request.project_id is None and not (request.project_path or "").strip():
                faults.append(FieldProblem("project_path", "Name the project: group/project, or its numeric id."))
            faults += _line("project_path", request.project_path or "")
            faults += _json("project_path", request.project_id)
    return tuple(faults)


def branch_problem(name: str) -> str | None:
    """Why git would refuse this branch name, or None."""
    if match := _REF_FORBIDDEN.search(name):
        return f"A branch cannot contain {match.group()!r}."
    if name.startswith(("/", "-", ".")) or name.endswith(("/", ".")):
        return "A branch cannot begin with '/', '-' or '.', nor end with '/' or '.'."
    if name == "@" or name.startswith("refs/"):
        return f"{name!r} cannot be a branch."
    return None


def _branch(name: str | None) -> Iterator[FieldProblem]:
    if name and (reason := branch_problem(name)):
        yield FieldProblem("branch_name", f"{reason} Leave the branch empty to let the service choose one.")


def _line(field: str, text: str) -> tuple[FieldProblem, ...]:
    faults = tuple(_json(field, text))
    if faults or text.isprintable():
        return faults
    return (FieldProblem(field, "Contains a line break or an invisible character: delete it."),)


def _json(field: str, value: Json) -> Iterator[FieldProblem]:
    match value:
        case bool() | None:
            return
        case int() if not -MAX_INTEGER <= value < MAX_INTEGER:
            yield FieldProblem(field, f"{value} does not fit into 64 bits; write it as text.")
        case float() if not math.isfinite(value):
            yield FieldProblem(field, f"{value} is not a JSON number.")
        case str() if any("\ud800" <= c <= "\udfff" for c in value):
            yield FieldProblem(field, "Contains half a character (a lone surrogate): delete it and type it again.")
        case list() | dict():
            for item in value if isinstance(value, list) else chain.from_iterable(value.items()):
                yield from _json(field, item)


class ActionRefusedError(RunwardenError):
    """The program itself refused to act."""


class ReadOnlyError(ActionRefusedError):
    """The profile, or the command, is read-only."""

    kind = "read_only"

    def __init__(self) -> None:
        super().__init__(
            "Read-only: nothing is sent or resolved. Drop --read-only, or set read_only = false for this profile."
        )


class InvalidRequestError(ActionRefusedError):
    """The request could not succeed as it is."""

    kind = "invalid"

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        super().__init__(" ".join(problem.message for problem in problems))
        self.problems = problems


class BlockedError(ActionRefusedError):
    """An earlier action on the same subject is still open; acting again could do it twice."""

    kind = "blocked"

    def __init__(self, existing: Action, command_line: str) -> None:
        subject, action_id = existing.subject, existing.action_id
        if existing.state == "unknown":
            reason = f"The outcome of an earlier attempt for {subject} is unknown ({action_id})."
            fix = f"Check whether it took effect, then: {command_line} actions resolve {action_id}"
            fix += " --created ID | --not-created | --send-again"
        else:
            reason = f"An attempt for {subject} is being sent ({action_id})."
            fix = f"Wait for it: {command_line} actions show {action_id}"
        super().__init__(f"{reason} Nothing was sent. {fix}")
        self.existing = existing


class DuplicateError(ActionRefusedError):
    """An organization was created for the address before: another one needs an explicit yes."""

    kind = "duplicate"

    def __init__(self, existing: Action) -> None:
        made = f"{existing.result_id}, {existing.action_id}" if existing.result_id else existing.action_id
        super().__init__(f"An organization was created for {existing.subject} before ({made}). Nothing was sent.")
        self.existing = existing
        """The newest confirmed creation for the address."""


class AlreadyAskedError(ActionRefusedError):
    """An action with the same key is in the ledger."""

    kind = "already_asked"

    def __init__(self, existing: Action) -> None:
        super().__init__(
            f"The same request was sent before as {existing.action_id} ({existing.state}). It was not sent again."
        )
        self.existing = existing

    def is_for(self, request: WriteRequest) -> bool:
        """Whether the action sent this request, for any rule; False: its key belongs to another request."""
        existing = self.existing
        bodies = list[dict[str, Any]]()
        for text in (existing.body_json, as_json(request, existing.action_id)):
            body = json.loads(text)
            notes = {name: value for name, value in (body.get("metadata") or {}).items() if name != RULE}
            bodies.append({**body, "metadata": notes})
        return existing.path == request.path and bodies[0] == bodies[1]


class DoubtfulIdError(ActionRefusedError):
    """A typed id probably is not this action's result; the user may know better."""

    kind = "doubtful_id"
