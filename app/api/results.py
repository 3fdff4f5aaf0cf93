"""The results extension (docs/dev/api.md): its answers as records."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from app.api.errors import NotFoundError, NotOfferedError, RefusedError, UnusableAnswerError
from app.api.transport import Reply
from app.api.wire import as_object, fields, read, record
from storage.records.results import (
    SEVERITIES,
    AgentInput,
    Change,
    FailureFacts,
    Invitation,
    LogChunk,
    LogStep,
    NamedAgent,
    ReportedFinding,
    RunTurns,
    Turn,
)

_ABSENT: Final = frozenset({"run_not_found", "turn_not_found", "artifact_not_found", "invitation_not_found"})
"""The extension's own 404 codes; any other 404 comes from a service without it."""
_NOT_OFFERED: Final = frozenset({404, 405, 501})
_LONGEST: Final = 1 << 62
_COMMIT_LENGTHS: Final = frozenset({40, 64})


def named_agents(reply: Reply) -> tuple[NamedAgent, ...]:
    """The agents that may be started, by name.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    agents = []
    for agent in map(as_object, _listed(read(reply.body), "agents")):
        inputs = []
        for name, found in ((name, fields(one)) for name, one in as_object(agent.get("inputs", {})).items()):
            default, choices = found.get("default"), found.get("choices", ())
            own = {
                "name": name,
                "default": None if default is None else as_json_text(default),
                "choices": list(map(as_json_text, choices)) if isinstance(choices, list) else choices,
                "is_required": found.get("required", False),
            }
            inputs.append(record(AgentInput, found | own))
        agents.append(record(NamedAgent, agent | {"inputs": inputs}))
    return tuple(agents)


def _listed(found: dict[str, Any], name: str) -> list[object]:
    if not isinstance(listed := found.get(name), list):
        raise UnusableAnswerError(f"The service's answer cannot be read: {name} is not a list.")
    return listed


def invitations(reply: Reply) -> tuple[Invitation, ...]:
    """The invitations to organizations that ours created, newest first.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    return tuple(record(Invitation, fields(one)) for one in _listed(read(reply.body), "invitations"))


def may_create(reply: Reply) -> bool:
    """Whether the token may create organizations, by the answer about invitations; False also if it does not say so."""
    return read(reply.body).get("may_create") is True


def failure_facts(reply: Reply) -> FailureFacts:
    """What agents ask, and which runs were cancelled, newest first.

    Raises:
        UnusableAnswerError: The answer cannot be read.
    """
    return record(FailureFacts, {"questions": None, **read(reply.body)})


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
    found = read(reply.body)
    postings = [fields(one) for one in _listed({"postings": []} | found, "postings")]
    own = {
        "source": "service",
        "note": "",
        "turns": sorted(map(_turn, _listed(found, "turns")), key=lambda turn: turn.number),
        "postings": [one | {"url": _web_address(one)} for one in postings],
        "url": _web_address(found),
    }
    return record(RunTurns, found | own)


def _turn(received: object) -> Turn:
    found = fields(received)
    inputs, findings = found.get("inputs"), found.get("findings")
    own = {
        "state": found.get("state") or "",
        # A turn that continued its own kept change starts from no other.
        "from_turn": None if (first := found.get("from_turn")) == found.get("number") else first,
        "commit": _commit(found.get("commit")),
        "findings": list(map(_finding, findings)) if isinstance(findings, list) else findings,
        "inputs_json": json.dumps(inputs) if isinstance(inputs, dict) else None,
    }
    return record(Turn, found | own)


def _finding(received: object) -> ReportedFinding:
    """The finding, without an unknown severity or an impossible line."""
    found = fields(received)
    line, severity = found.get("line"), found.get("severity")
    own = {
        "line": None if isinstance(line, int) and line < 1 else line,
        "severity": severity if severity in SEVERITIES else None,
    }
    return record(ReportedFinding, found | own)


def _web_address(found: dict[str, Any]) -> str | None:
    """The address, unless it is one that no browser should open."""
    url = found.get("url")
    return url if isinstance(url, str) and url.startswith(("https://", "http://")) else None


def log_chunk(reply: Reply, asked: int = -1, before: int | None = None) -> LogChunk:
    """A piece of a log; `asked` is the requested offset, counted from the end if negative.

    `before` is the offset at which steps should end. 0: at the log's end. None: no steps were requested.

    Raises:
        UnusableAnswerError: It lacks its offsets, or reading on from there would never end.
    """
    offset, following, size = (_number(reply, name) for name in ("Offset", "Next", "Size"))
    is_ended = reply.headers.get("Runwarden-Log-Ended") == "true"
    steps, data = None, reply.body
    if reply.headers.get("Runwarden-Log-Form") == "steps":
        steps, data = tuple(record(LogStep, fields(one)) for one in _listed(read(reply.body), "steps")), b""
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
        raise UnusableAnswerError(f"The service's answer lacks its position in the log ({name}).")
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


def _commit(text: object) -> str | None:
    """A commit's full id; anything else counts as none: it becomes an argument of git's."""
    if isinstance(text, str) and len(text) in _COMMIT_LENGTHS and set(text) <= set("0123456789abcdef"):
        return text
    return None
