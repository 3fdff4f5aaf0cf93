"""The bodies of answers, decoded into records: strict about ids and the way to the next page, tolerant of the rest.

Unknown fields, statuses and platforms are kept as received, and so is a field of another type than the spec's. A time
that cannot be read is unknown. An answer without what is required raises `UnusableAnswerError`, as do NaN, and text
that is not JSON.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from app.api.errors import NotFoundError, NotOfferedError, RefusedError, UnusableAnswerError
from app.api.requests import Answer, OnboardProject, WriteRequest
from app.api.timestamps import timestamp
from app.api.transport import Reply
from storage.records import WRITE_KINDS, HealthSample, Repository, Run, RunPage
from storage.records.health import NO_STATUS
from storage.records.organization import AgentInput, NamedAgent
from storage.records.results import (
    SEVERITIES,
    Change,
    LogChunk,
    LogStep,
    PostingStatus,
    ReportedFinding,
    RunTurns,
    Turn,
)

_COUNTS: Final = range(2**63)
_ODD_IDS: Final = range(-(2**63), 2**63)
_MAX_ID: Final = 1_000
_MAX_DEPTH: Final = 100
_NESTING: Final = frozenset({dict, list})
_STR: Final = frozenset({str})
_Record = TypeVar("_Record")
_ABSENT: Final = frozenset({"run_not_found", "turn_not_found", "artifact_not_found", "invitation_not_found"})
"""The extension's own 404 codes; any other 404 comes from a service without it."""
_NOT_OFFERED: Final = frozenset({404, 405, 501})
_MAX_LENGTH: Final = 1 << 62
_COMMIT: Final = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read(body: bytes, status: int | None = None, *, may_repair: bool = False) -> dict[str, Any]:
    r"""The JSON object of a body; `may_repair`: half of a surrogate pair, as in `\ud800`, becomes U+FFFD."""
    try:
        try:
            document = msgspec.json.decode(body)
        except ValueError:
            if not (may_repair and b"\\u" in body):
                raise
            # Half of a surrogate pair in one field would hide a whole page.
            text = json.dumps(json.loads(body), ensure_ascii=False)
            document = msgspec.json.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnusableAnswerError(f"The service's answer cannot be read: {error}.", status=status) from error
    # Objects and lists that are nested more deeply could exhaust the stack of another parser.
    level: list[Any] = [document] if type(document) in _NESTING else []
    for _ in range(_MAX_DEPTH):
        inner = (outer.values() if type(outer) is dict else outer for outer in level)
        if not (level := [item for values in inner for item in values if type(item) in _NESTING]):
            return as_object(document, status)
    raise UnusableAnswerError("The service's answer cannot be read: it is nested too deeply.", status=status)


def as_object(received: object, status: int | None = None) -> dict[str, Any]:
    if not isinstance(received, dict):
        raise UnusableAnswerError("The service's answer cannot be read: an object is missing.", status=status)
    return received


def record(kind: type[_Record], received: object, **own: object) -> _Record:
    """A record from the fields of an answer's object, with its times decoded; `own` replaces some."""
    fields = {
        name: timestamp(value) if name.endswith("_at") or name == "at" else value
        for name, value in as_object(received).items()
    }
    try:
        return msgspec.convert(fields | own, kind)
    except msgspec.ValidationError as error:
        raise UnusableAnswerError(f"The service's answer cannot be read: {error}.") from error


def _as_text(received: object) -> str:
    """A field as text, whatever its type; null and a missing one are empty."""
    if received is None:
        return ""
    if isinstance(received, str):
        return received
    return msgspec.json.encode(received).decode()


def _run(received: object) -> Run | None:
    """A run with all its fields, odd ones as JSON (spec 2.4), or None if it has no usable id."""
    document = received if isinstance(received, dict) else {}
    run_id = document.get("run_id")
    if not (isinstance(run_id, str) and 0 < len(run_id) <= _MAX_ID) and not (
        type(run_id) is int and run_id in _ODD_IDS
    ):
        return None
    received = document.get("repository")
    if not isinstance(received, dict):
        repository = Repository.of("", received)
    else:
        platform = _as_text(received.get("platform"))
        data = received.get("data")
        if isinstance(data, dict) and set(map(type, data.values())) <= _STR:
            repository = _known_repository(platform, tuple(data.items()))
        else:
            repository = Repository.of(platform, {} if data is None else data)
    return Run(
        run_id=str(run_id),
        status=_as_text(document.get("status")),
        branch_name=_as_text(document.get("branch_name")),
        repository=repository,
        created_at=timestamp(document.get("created_at")),
        updated_at=timestamp(document.get("updated_at")),
        raw_json=msgspec.json.encode(document).decode(),
    )


# A few repositories appear many times in a history.
@lru_cache(maxsize=1_000)
def _known_repository(platform: str, data: tuple[tuple[str, str], ...]) -> Repository:
    return Repository.of(platform, dict(data))


# Most polls return the same body as the one before.
@lru_cache(maxsize=4)
def run_page(body: bytes) -> RunPage:
    """A page of the run list; entries without a usable id are counted, not kept (spec 2.5)."""
    page = read(body, may_repair=True)
    rows = page.get("runs")
    token = page.get("next_token")
    total = page.get("total_count")
    if not isinstance(rows, list) or not isinstance(token, str | None):
        raise UnusableAnswerError("The service's answer cannot be read: it is not a page of runs.")
    runs = tuple([run for run in map(_run, rows) if run is not None])
    total = total if type(total) is int and total in _COUNTS else None
    return RunPage(runs, token or None, total, dropped=len(rows) - len(runs))


def health_report(body: bytes) -> tuple[HealthSample, ...]:
    """A health answer; a platform that is null is not connected, one without a status has `NO_STATUS` (spec 2.7)."""
    platforms = read(body, may_repair=True).get("code_hosting") or {}
    if not isinstance(platforms, dict):
        raise UnusableAnswerError("The service's answer cannot be read: code_hosting is not an object.")
    samples = []
    for platform, received in platforms.items():
        if received is not None:
            # A value that is not an object is taken as its status.
            document = received if isinstance(received, dict) else {"status": received}
            host, group = (
                None if document.get(name) is None else _as_text(document[name]) for name in ("host", "group")
            )
            status = _as_text(document.get("status")).strip() or NO_STATUS
            samples.append(HealthSample(platform, status, host, group, msgspec.json.encode(received).decode()))
    return tuple(samples)


def answer(request: WriteRequest, status: int, body: bytes) -> Answer:
    """The answer to a write; its id alone is required, since an id proves that the write was carried out."""
    document = read(body, status)
    raw = body.decode()
    kind = WRITE_KINDS[request.kind]
    if isinstance(request, OnboardProject):
        # The spec names this endpoint but not its answer (4.6), so the format is our decision.
        if not isinstance(document.get("success"), bool):
            raise UnusableAnswerError("The service's answer cannot be read: success is missing.", status=status)
        return Answer(status, raw, _as_text(document.get("project_path")) or request.project_path or "")
    if not (isinstance(result_id := document.get(kind.fields[0]), str) and 0 < len(result_id) <= _MAX_ID):
        raise UnusableAnswerError(f"The service's answer cannot be read: {kind.fields[0]} is missing.", status=status)
    return Answer(status, raw, result_id, _run(document) if kind.made == "run" else None)


def named_agents(reply: Reply) -> tuple[NamedAgent, ...]:
    agents = []
    for agent in map(as_object, read_list(read(reply.body), "agents")):
        inputs = []
        for name, declared in as_object(agent.get("inputs", {})).items():
            document = as_object(declared)
            default = document.get("default")
            choices = document.get("choices", ())
            agent_input = record(
                AgentInput,
                document,
                name=name,
                default=None if default is None else as_json_text(default),
                choices=list(map(as_json_text, choices)) if isinstance(choices, list) else choices,
                is_required=document.get("required", False),
            )
            inputs.append(agent_input)
        agents.append(record(NamedAgent, agent, inputs=inputs))
    return tuple(agents)


def read_list(document: dict[str, Any], name: str) -> list[object]:
    if not isinstance(values := document.get(name), list):
        raise UnusableAnswerError(f"The service's answer cannot be read: {name} is not a list.")
    return values


def as_json_text(value: object) -> str:
    """A value as typed after KEY=: text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def translate_absence(extension: str, *, is_write: bool = False) -> Iterator[None]:
    """Raise `NotOfferedError` if the service lacks this extension, rather than the run; empty stands for the API."""
    try:
        yield
    except RefusedError as error:
        is_absent = isinstance(error, NotFoundError) and error.error_code in _ABSENT
        # A gateway may answer a write with 501 after the service has carried it out.
        is_in_doubt = is_write and error.may_have_been_executed
        if not extension or error.status not in _NOT_OFFERED or is_absent or is_in_doubt:
            raise
        message = f"This service does not offer {extension}."
        raise NotOfferedError(message, status=error.status, error_code=error.error_code) from error


def run_turns(reply: Reply) -> RunTurns:
    """A run's turns, oldest first."""
    document = read(reply.body)
    postings = read_list({"postings": []} | document, "postings")
    return record(
        RunTurns,
        document,
        source="service",
        note="",
        turns=sorted(map(_turn, read_list(document, "turns")), key=lambda turn: turn.number),
        postings=[record(PostingStatus, posting, url=_web_address(as_object(posting))) for posting in postings],
        url=_web_address(document),
    )


def _turn(received: object) -> Turn:
    document = as_object(received)
    inputs = document.get("inputs")
    findings = document.get("findings")
    first = document.get("from_turn")
    return record(
        Turn,
        document,
        state=document.get("state") or "",
        # A turn that continued its own kept change starts from no other turn.
        from_turn=None if first == document.get("number") else first,
        commit=_commit(document.get("commit")),
        findings=list(map(_finding, findings)) if isinstance(findings, list) else findings,
        inputs_json=json.dumps(inputs) if isinstance(inputs, dict) else None,
    )


def _finding(received: object) -> ReportedFinding:
    document = as_object(received)
    line = document.get("line")
    severity = document.get("severity")
    known_severity = severity if severity in SEVERITIES else None
    return record(
        ReportedFinding, document, line=None if isinstance(line, int) and line < 1 else line, severity=known_severity
    )


def _web_address(document: dict[str, Any]) -> str | None:
    """The address, unless it is one that no browser should open."""
    url = document.get("url")
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return url
    return None


def log_chunk(reply: Reply, requested: int = -1, before: int | None = None) -> LogChunk:
    """A piece of a log; `requested` is the requested offset, counted from the end if negative.

    `before` is the offset at which steps should end. 0: at the log's end. None: no steps were requested.
    """
    numbers = list[int]()
    for name in ("Offset", "Next", "Size"):
        text = reply.headers.get(f"Runwarden-Log-{name}", "")
        if not (text.isascii() and text.isdecimal() and int(text[:20]) < _MAX_LENGTH):
            raise UnusableAnswerError(f"The service's answer lacks its position in the log ({name}).")
        numbers.append(int(text))
    offset, following, size = numbers
    is_ended = reply.headers.get("Runwarden-Log-Ended") == "true"
    steps, data = None, reply.body
    if reply.headers.get("Runwarden-Log-Form") == "steps":
        steps = tuple(record(LogStep, step) for step in read_list(read(reply.body), "steps"))
        data = b""
    is_more = bool(data or steps)
    if following < offset or (is_more and following == offset) or (requested >= 0 and offset != min(requested, size)):
        raise UnusableAnswerError("The service's answer goes backwards in the log.")
    if is_ended and not before and following == offset < size:
        raise UnusableAnswerError("The service's answer leaves out the end of the log.")
    if steps is not None and before and following != before:
        raise UnusableAnswerError("The service's answer does not end where it was asked to.")
    return LogChunk(offset, following, size, is_ended, data, steps)


def change(reply: Reply, turn: int | None) -> Change:
    if not reply.headers.get("Content-Type", "").startswith("text/plain"):
        raise UnusableAnswerError("The service's answer is not a patch.", status=reply.status)
    base, head = (_commit(reply.headers.get(f"Runwarden-{name}")) for name in ("Base", "Head"))
    name = "the branch before the turn"
    if turn is None:
        name = "merge base with the default branch"
    return Change(base, head, name if base else "", (), reply.body, source="service")


def _commit(text: object) -> str | None:
    """A commit's full id; anything else is dropped, since it becomes an argument for git."""
    return text if isinstance(text, str) and _COMMIT.fullmatch(text) else None
