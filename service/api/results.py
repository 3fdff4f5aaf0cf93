"""Results, an extension of the specification (docs/dev/api.md): agents, and runs with turns, logs and changes."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, JsonValue

from service.agents import programs
from service.agents.inputs import AgentInput
from service.agents.options import DEFAULT_NAME, PresetName
from service.agents.steps import StepKind, window
from service.api.auth import Caller, RunReader, RunWriter
from service.api.bodies import NewMessage, RunMessage, describe_answers, parameter
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request, describe_failures
from service.api.runs import RunBody, run_of
from service.clock import rfc3339, rfc3339_or_none
from service.findings import IdentifiedFinding
from service.findings.question import offer
from service.rules import SCHEDULE
from service.store import agents, dispatch, messages, postings, runs, turn_files, turns, usage
from service.store.runs import FINAL
from service.store.schema import CANCELLED, HAS_QUESTION, WAS_CANCELLED
from service.store.turn_files import FINDINGS, MAX_DIFF, PATCHES, DiffKind, LogPiece
from service.store.turns import MADE_UP, NOT_EXECUTED, STOPPED, Turn, TurnOutcome
from service.text import storable

_PIECE: Final = 256 << 10
_MAX_KEPT: Final = 64 << 20
"""The largest kept patch: it is the only copy of a change that was not pushed."""
_MAX_FINDINGS: Final = 2 << 20
"""The size of the findings of all of a run's turns together."""
_SHOWN_AS_STORED: Final = (
    *("number", "instructions", "caller", "outcome", "reason", "failure_kind", "summary"),
    *("files", "additions", "deletions"),
)
_MAX_QUESTIONS: Final = 100
_MAX_CANCELLED: Final = 1000
_MAX_WAIT_S: Final = 30
_PAUSE_S: Final = 0.5
"""How often a waiting request checks whether the log has grown."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_MAX_OFFSET: Final = 10**18 - 1
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
_logger = logging.getLogger(__name__)
router = APIRouter(tags=["results"])


class AgentBody(BaseModel):
    """An agent, as OpenAPI describes it."""

    name: str
    description: str
    inputs: dict[str, AgentInput]


class AgentsBody(BaseModel):
    """All agents of an organization."""

    agents: list[AgentBody]


@router.get("/external/agents", **describe_answers(200, AgentsBody))
def list_agents(context: RequestContext, caller: RunReader) -> dict[str, object]:
    """Return the agents by name, each with its description and inputs; an agent without inputs accepts any."""
    with context.database.read() as connection:
        available = agents.for_organization(connection, caller.organization.id)
    documents = []
    for agent in available:
        inputs = {name: declared.model_dump() for name, declared in agent.options.inputs.items()}
        documents.append({"name": agent.name, "description": agent.options.description, "inputs": inputs})
    return {"agents": documents}


class UsageBody(BaseModel):
    """A turn's use of its models."""

    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced_requests: int
    list_prices_of: str | None


class MessageBody(BaseModel):
    """What a caller said to a run while it was active."""

    message_id: str
    text: str
    when: str
    state: str
    caller: str | None
    sent_at: str


class ArtifactBody(BaseModel):
    """A file that a turn's agent left in `.runwarden/artifacts`, or a patch that is too large to show."""

    name: str
    bytes: int


class TurnBody(BaseModel):
    """A turn, as OpenAPI describes it."""

    number: int
    instructions: str
    caller: str | None
    state: str
    started_at: str | None
    ended_at: str | None
    outcome: str | None
    reason: str | None
    failure_kind: str | None
    commit: str | None
    summary: str | None
    question: str | None
    choices: list[str]
    offer: str | None
    """The question or offer with which the last message of a completed turn ends."""
    files: int | None
    additions: int | None
    deletions: int | None
    from_turn: int | None
    usage: UsageBody | None
    usage_by_agent: dict[str, UsageBody]
    agent: str
    """The agent that did it: the run's, or a fallback."""
    findings: list[IdentifiedFinding] | None
    artifacts: list[ArtifactBody]
    inputs: dict[str, JsonValue] | None
    """The caller's inputs by name; null if there were none."""
    messages: list[MessageBody]


class PostingBody(BaseModel):
    """A result that was posted on the code host, or will be."""

    kind: str
    state: str
    turn: int
    commit: str | None
    url: str | None
    reason: str | None
    posted_at: str | None


class QuestionBody(BaseModel):
    """A question that waits for an answer; the instructions of the run's next turn are the answer."""

    run_id: str
    turn: int
    question: str
    choices: list[str]
    asked_at: str


class QuestionsBody(BaseModel):
    """Details of failed runs: the newest questions, and the newest cancelled runs."""

    questions: list[QuestionBody]
    cancelled: list[str]


class RunResultsBody(RunBody):
    """A run with its agent and its turns."""

    model_config = ConfigDict(json_schema_extra={})

    agent: str
    turns: list[TurnBody]
    postings: list[PostingBody]
    url: str | None
    """The address of its page; null if there is none."""
    budget_used: float | None = None
    """The used part of the budget; left out if the run has no budget."""


class StepBody(BaseModel):
    """A step of a turn's conversation."""

    kind: StepKind
    text: str
    at: str | None
    call: str | None
    seconds: float | None
    tokens: int | None
    failed: bool


class StepsBody(BaseModel):
    """A piece of a log, as steps."""

    steps: list[StepBody]


def _bytes(media: str, *headers: str) -> dict[int | str, dict[str, object]]:
    schema = {"schema": {"type": "string", "format": "binary"}}
    described = {name: {"schema": {"type": "string"}} for name in headers}
    return {200: {"description": "The bytes.", "content": {media: schema}, "headers": described}}


_LOG: Final = _bytes(
    "application/octet-stream", *(f"Runwarden-Log-{name}" for name in ("Offset", "Next", "Size", "Ended", "Form"))
)
_FORMS: Final = ("raw", "steps")
_WHOLE: Final = {"type": "integer", "format": "int64", "default": 0}
_BYTE: Final = {**_WHOLE, "maximum": _MAX_OFFSET}
_LOG_PARAMETERS: Final = [
    parameter(
        "offset", "The first byte to return; a negative offset counts from the end.", **_BYTE, minimum=-_MAX_OFFSET
    ),
    parameter("wait", "Seconds to wait if there is nothing more yet.", **_WHOLE, minimum=0, maximum=_MAX_WAIT_S),
    parameter("before", "With steps: the byte before which to stop; 0 for the last byte.", **_BYTE, minimum=0),
    parameter("form", "steps: as JSON, if the agent's program is known.", type="string", enum=[*_FORMS], default="raw"),
]
_TurnNumber = Annotated[
    str, Path(description="From 1.", json_schema_extra={"type": "integer", "minimum": 1, "maximum": 999_999_999})
]
_PATCH: Final = {**_bytes("text/plain", "Runwarden-Base", "Runwarden-Head"), **describe_failures(409, 410, 413)}


@router.get("/external/runs/{run_id}", **describe_answers(200, RunResultsBody))
def read_run(run_id: str, request: Request, context: RequestContext, caller: RunReader) -> dict[str, object]:
    """Return a run with its turns, oldest first."""
    # If no address is configured, the page is at the address that the caller used.
    page_url = f"{request.base_url}runs/{{run_id}}" if context.settings.page.enabled else None
    url = context.settings.run_url or page_url
    return run_document(run_id, context, caller) | {"url": url.replace("{run_id}", run_id) if url else None}


def run_document(run_id: str, context: Context, caller: Caller) -> dict[str, Any]:
    """Return a run with its turns, oldest first, without its address (404: the organization has no such run)."""
    with context.database.read() as connection:
        run = run_of(connection, caller, run_id)
        conversation = dispatch.explain_turns(connection, run, context.settings.execution, context.clock)
        used = usage.of_turns(connection, run_id)
        agent = agents.of_run(connection, run)
        findings = turn_files.newest(connection, run_id, FINDINGS, _MAX_FINDINGS)
        posted = [row.document() for row in postings.of_run(connection, run_id)]
        left = turn_files.artifacts_of(connection, run_id)
        by_turn = messages.by_turn(connection, run_id)
    bodies = []
    for turn in conversation:
        shares, reported = used[turn.number], findings.get(turn.number)
        # A plain run has no inputs, and the inputs of a rule's run do not come from a caller.
        by_rule = (turn.caller or "").partition(" ")[0] in {turns.WEBHOOK, SCHEDULE}
        by_name = turn.number == 1 and not by_rule and (run.agent != DEFAULT_NAME or bool(turn.inputs))
        outcome = turn.outcome
        body = {name: getattr(turn, name) for name in _SHOWN_AS_STORED} | {
            "state": turn.status if outcome in {None, turns.NEEDS_ANSWER} else outcome,
            "started_at": rfc3339_or_none(turn.started_at),
            "ended_at": rfc3339_or_none(turn.finished_at),
            "commit": turn.commit_sha,
            # A turn that was paused continues from its own patch.
            "from_turn": None if turn.from_turn == turn.number else turn.from_turn,
            **(turn.question or {"question": None, "choices": []}),
            "offer": offer(turn.summary) if outcome == "completed" else None,
            "usage": usage.add_up(shares.values()).document() if shares else None,
            "findings": None if reported is None else json.loads(reported)["findings"],
            "inputs": turn.inputs if by_name else None,
            "agent": turn.agent or run.agent,
            "usage_by_agent": {name: share.document() for name, share in shares.items()},
            "messages": [row.document() for row in by_turn[turn.number]],
            "artifacts": left[turn.number],
        }
        bodies.append(body)
    model = None if agent is None else agent.options.model
    whole = usage.add_up([share for shares in used.values() for share in shares.values()])
    used_share = None if model is None else usage.run_share(whole, model.budget)
    body = run.body | {"agent": run.agent, "turns": bodies, "postings": posted}
    return body if used_share is None else body | {"budget_used": used_share}


@router.get("/external/questions", **describe_answers(200, QuestionsBody))
def read_questions(context: RequestContext, caller: RunReader) -> dict[str, object]:
    """Return the newest open questions of agents (at most 100) and the newest cancelled runs (at most 1,000)."""
    with context.database.read() as connection:
        asking = turns.last_turns(connection, caller.organization.id, HAS_QUESTION, _MAX_QUESTIONS)
        cancelled = turns.last_turns(connection, caller.organization.id, WAS_CANCELLED, _MAX_CANCELLED)
    questions = [
        {"run_id": row.run_id, "turn": row.number, "asked_at": rfc3339(row.finished_at), **row.question}
        for row in asking
        if row.question
    ]
    return {"cancelled": [row.run_id for row in cancelled], "questions": questions}


def _turn_of(connection: sa.Connection, caller: Caller, run_id: str, number: str) -> Turn:
    run_of(connection, caller, run_id)
    turn = turns.by_number(connection, run_id, int(number)) if _NUMBER.fullmatch(number) else None
    if turn is None:
        raise HttpError(404, "turn_not_found", f"the run {run_id} has no turn {number!r}; turns are counted from 1")
    return turn


@router.get(
    "/external/runs/{run_id}/turns/{n}/log",
    response_class=Response,
    openapi_extra={"parameters": _LOG_PARAMETERS},
    responses={200: {"model": StepsBody} | _LOG[200], **describe_failures(400, 410)},
)
async def read_log(
    run_id: str, n: _TurnNumber, request: Request, context: RequestContext, caller: RunReader
) -> Response:
    """Return a piece of a turn's log; a waiting request uses no database connection or thread."""
    numbers = []
    for name in ("offset", "wait", "before"):
        texts = request.query_params.getlist(name)
        if len(texts) > 1 or not all(_INTEGER.fullmatch(text) for text in texts):
            raise bad_request("invalid_query", f"{name} must be one integer of at most 18 digits")
        numbers.append(int(texts[0]) if texts else 0)
    offset, wait_s, before = numbers
    if not 0 <= wait_s <= _MAX_WAIT_S:
        raise bad_request("invalid_query", f"wait must be from 0 to {_MAX_WAIT_S} seconds")
    if before < 0 or (form := request.query_params.get("form", _FORMS[0])) not in _FORMS:
        raise bad_request("invalid_query", f"form must be {' or '.join(_FORMS)}, and before not negative")

    def ask() -> tuple[Response, bool]:
        with turn_log(context, caller, run_id, n) as log:
            preset = log.preset if form == "steps" else None
            piece = log.read(offset, 0 if preset else _PIECE)
            start, following = piece.offset, piece.offset + len(piece.data)
            answer = Response(piece.data, media_type="application/octet-stream")
            if preset is not None:
                read = (preset, lambda at, most: log.read(at, most).data)
                start, following, steps = window(*read, piece.size, offset, before, is_ended=log.is_ended)
                answer = JSONResponse({"steps": [step.document() for step in steps]})
        facts = {"Offset": start, "Next": following, "Size": piece.size, "Ended": str(log.is_ended).lower()}
        facts |= {"Form": "steps" if preset else "raw"}
        answer.headers.update({f"Runwarden-Log-{name}": str(value) for name, value in facts.items()})
        answer.headers.update(_NOSNIFF)
        return answer, following != start or log.is_ended

    return await wait_for_more(context, ask, wait_s)


async def wait_for_more(context: Context, ask: Callable[[], tuple[Response, bool]], wait_s: float) -> Response:
    """Poll a log until it has grown (the second value from `ask`) or the time is up; no thread waits in between."""
    until = time.monotonic() + wait_s
    while True:
        answer, is_grown = await run_in_threadpool(ask)
        if is_grown or context.closing.is_set() or time.monotonic() >= until:
            return answer
        await asyncio.sleep(min(_PAUSE_S, wait_s))


@dataclass(frozen=True, slots=True)
class TurnLog:
    """The log of a turn that may still be growing."""

    read: Callable[[int, int], LogPiece]
    """Returns at most so many bytes from an offset; a negative offset counts from the end."""
    preset: PresetName | None
    """The program that wrote it, if it is a known one."""
    is_ended: bool


@contextmanager
def turn_log(context: Context, caller: Caller, run_id: str, number: str) -> Iterator[TurnLog]:
    """Open the log of a turn (404: there is none; 410: it is no longer kept)."""
    with context.database.read() as connection:
        # Read the turn before the log: if the turn has ended, the log is complete.
        turn = _turn_of(connection, caller, run_id, number)
        is_ended, key = turn.status in FINAL, (turn.run_id, turn.number)
        agent = agents.of_run(connection, runs.by_id(connection, run_id))

        def read(start: int, limit: int) -> LogPiece:
            piece = turn_files.log_piece(connection, context.folder, key, start, limit)
            if piece is None and is_ended and turn.attempt:
                problem = f"the log of turn {turn.number} is no longer kept"
                raise HttpError(410, "log_not_kept", NOT_EXECUTED if turn.executor == MADE_UP else problem)
            return piece or LogPiece(0, 0, b"")

        yield TurnLog(read, None if agent is None else agent.options.preset, is_ended)


@router.get("/external/runs/{run_id}/turns/{n}/diff", response_class=Response, responses=_PATCH)
def read_turn_diff(run_id: str, n: _TurnNumber, context: RequestContext, caller: RunReader) -> Response:
    """Return a turn's change as a patch."""
    with context.database.read() as connection:
        turn = _turn_of(connection, caller, run_id, n)
        if turn.status not in FINAL:
            raise HttpError(409, "turn_active", f"turn {turn.number} has not ended; its change is known when it has")
        return _patch(context, connection, turn, "diff", turn.base_sha)


@router.get("/external/runs/{run_id}/diff", response_class=Response, responses=_PATCH)
def read_run_diff(run_id: str, context: RequestContext, caller: RunReader) -> Response:
    """Return the whole run's change since it left the default branch, as a patch."""
    with context.database.read() as connection:
        run_of(connection, caller, run_id)
        last = next((turn for turn in reversed(turns.of(connection, run_id)) if turn.commit_sha), None)
        if last is None:
            return Response(media_type="text/plain", headers=_NOSNIFF)
        kind: DiffKind = "diff" if last.merge_base == last.base_sha else "run.diff"
        return _patch(context, connection, last, kind, last.merge_base)


def _patch(context: Context, connection: sa.Connection, turn: Turn, kind: DiffKind, base: str | None) -> Response:
    if turn.commit_sha is None and not turn.is_unpushed:
        return Response(media_type="text/plain", headers=_NOSNIFF)
    patch = turn_files.diff(connection, context.folder, (turn.run_id, turn.number), kind)
    if patch is None:
        way = f"read it with git: git fetch origin {turn.commit_sha}, then git show {turn.commit_sha}"
        way = way if turn.commit_sha else "it was not pushed; ask the operator of the service for it"
        raise HttpError(410, "diff_not_kept", f"the diff of turn {turn.number} is no longer kept; {way}")
    if len(patch) > (MAX_DIFF if turn.commit_sha else _MAX_KEPT):
        name = next(name for name, patch in PATCHES.items() if patch == kind)
        way = f"fetch it as an artifact: runwarden runs artifacts {turn.run_id} {name} --turn {turn.number}"
        raise HttpError(413, "diff_too_large", f"the diff is too large to show; {way}")
    ends = {"Runwarden-Base": base, "Runwarden-Head": turn.commit_sha}
    headers = {name: sha for name, sha in ends.items() if sha} | _NOSNIFF
    return Response(patch, media_type="text/plain", headers=headers)


@router.get(
    "/external/runs/{run_id}/turns/{n}/artifacts/{name:path}",
    response_class=Response,
    responses={**_bytes("application/octet-stream", "Content-Disposition"), **describe_failures()},
)
def read_artifact(run_id: str, n: _TurnNumber, name: str, context: RequestContext, caller: RunReader) -> Response:
    """Return a file that a turn's agent left, as a download."""
    with context.database.read() as connection:
        key = run_id, _turn_of(connection, caller, run_id, n).number
        content = turn_files.artifact(connection, context.folder, key, storable(name))
    if content is None:
        problem = f"turn {n} has no artifact {name!r}, or it is no longer kept"
        raise HttpError(404, "artifact_not_found", problem)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        **_NOSNIFF,
    }
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post("/external/runs/{run_id}/cancel", **describe_answers(202, RunBody, 409))
def cancel_run(run_id: str, context: RequestContext, caller: RunWriter) -> dict[str, object]:
    """Cancel an active run: it fails, its agent is interrupted, and nothing is pushed."""
    with context.database.write() as connection:
        run = run_of(connection, caller, run_id)
        reason = f"{CANCELLED} by {caller.token.alias or caller.token.id}"
        if not turns.cancel(connection, run_id, reason, context.clock()):
            last = turns.by_number(connection, run_id, run.turn)
            if last is None or last.outcome != CANCELLED:
                raise HttpError(409, "run_not_active", f"the run {run_id} has ended already: it is {run.status}")
            return run.body
        run = runs.by_id(connection, run_id) or run
        caller.record(connection, "run.cancel", context.clock(), run_id)
    _logger.info("%s turn %d %s", run_id, run.turn, reason)
    context.wake()
    return run.body


@router.post("/external/runs/{run_id}/messages", **describe_answers(202, MessageBody, 409, takes=RunMessage))
def say_to_run(run_id: str, context: RequestContext, caller: RunWriter, message: NewMessage) -> dict[str, object]:
    """Send a message to an active run: to its working agent if its program accepts messages, else in the next turn."""
    return say(context, caller, run_id, message)


def say(
    context: Context, caller: Caller, run_id: str, message: RunMessage, after: str | None = None
) -> dict[str, object]:
    """Store a message for an active run, and stop its turn if the message says so (404; 409: ended, or too many wait).

    `after`: the last message that the caller has seen. A later one with the same text is the same message, sent twice.
    """
    now, alias = context.clock(), caller.token.alias
    with context.database.write() as connection:
        run = run_of(connection, caller, run_id)
        if (turn := turns.lock_open(connection, run_id, run.turn)) is None:
            fix = "continue it, with its run_id in POST /external/runs"
            raise HttpError(409, "run_not_active", f"the run {run_id} has ended already: {fix}")
        sent = messages.of_runs(connection, [run_id])
        if after is not None and (same := next((m for m in sent if m.id > after and m.text == message.text), None)):
            return same.document()
        timings = [row.timing for row in sent if row.state == "waiting"]
        # When too many messages wait, one that stops the turn is still accepted.
        if len(timings) >= messages.MAX_WAITING and (message.when != "stop" or "stop" in timings):
            text = f"{messages.MAX_WAITING} messages wait for the run {run_id} already; say more when it has read them"
            raise HttpError(409, "too_many_messages", text)
        agent = agents.of_run(connection, run, turn.agent)
        is_able = message.when != "now" or (agent is not None and programs.hears(agent))
        timing = message.when if is_able else "end"
        added = messages.add(connection, run_id, turn.number, message.text, timing, alias, now)
        runs.touch(connection, run_id, now)
        if added.timing == "stop" and turn.status == "queued":
            stopped = TurnOutcome("failed", failure=f"{STOPPED} {alias or caller.token.id}")
            turns.end(connection, run_id, turn.number, stopped, now)
        stored = next(row for row in messages.of_runs(connection, [run_id]) if row.id == added.id)
    context.wake()
    return stored.document()
