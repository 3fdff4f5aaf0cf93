"""Listing runs, newest first, in pages with a keyset cursor, and starting them (spec 2.3, 4.2 to 4.4)."""

import base64
import contextlib
import hashlib
import hmac
import json
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

import sqlalchemy as sa
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from service.agents import inputs, invocation
from service.agents.inputs import InputError
from service.agents.options import DEFAULT_NAME
from service.api.auth import Caller, RunReader, RunWriter
from service.api.bodies import AgentStart, NewAgentRun, NewRun, RunStart, describe_answers, example, parameter
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request
from service.clock import parse_rfc3339, rfc3339
from service.execution.mirror import default_of
from service.git import GitCommandError
from service.reference import NAMED, NO_NUL, PLATFORMS, Reference, branch_fault, checked_path, location, reference
from service.store import agents, hosts, repositories, runs, turns
from service.store.runs import Filters, Run, TurnRequest
from service.text import plural

_STARTS: Final = ("patch", "branch")
"""The values of `start_from`, an extension of the specification (docs/dev/api.md)."""
_MARK_BYTES: Final = 16
_DEFAULT_SIZE: Final = 10
_MAX_SIZE: Final = 100
_INTEGER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_TEXT: Final = {"type": "string", "pattern": NO_NUL}
_DATE: Final = {"type": "string", "format": "date-time"}
_AT: Final = "2026-01-31T08:00:00.000000Z"
_RUN: Final = {
    "run_id": "run_01KG9QX4E8Z3V6T1M2N5P7R9S0",
    "status": "queued",
    "branch_name": "agent/fix-the-login",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
    "created_at": _AT,
    "updated_at": _AT,
}
router = APIRouter()


class Repository(BaseModel):
    """A repository reference (spec 2.3)."""

    platform: str
    data: dict[str, object]


class RunBody(BaseModel):
    """A run (spec 2.4)."""

    model_config = example(**_RUN)

    run_id: str
    status: str
    branch_name: str
    repository: Repository
    created_at: str
    updated_at: str


class RunListBody(BaseModel):
    """A page of runs, newest first (spec 2.5)."""

    model_config = example(runs=[_RUN], page_size=10, next_token=None, total_count=1)

    runs: list[RunBody]
    page_size: int
    next_token: str | None
    total_count: int


class ExecutionBody(BaseModel):
    """An agent's execution, whose id is the id of the run that carries it (spec 2.6)."""

    model_config = example(
        agent_name="reviewer", execution_id=_RUN["run_id"], repository="acme/api", status="queued", created_at=_AT
    )

    agent_name: str
    execution_id: str
    repository: str
    status: str
    created_at: str


def page_token(key: bytes, filters: Filters, position: bytes) -> str:
    """Return the token of the page that starts after a run; `position`: its `created_at` and id, as JSON."""
    signed = json.dumps([getattr(filters, name) for name in Filters.__slots__]).encode() + b"\0" + position
    mark = hmac.digest(key, signed, hashlib.sha256)[:_MARK_BYTES]
    return base64.urlsafe_b64encode(mark + position).rstrip(b"=").decode()


_PARAMETERS: Final = [
    parameter("page_size", "Page size.", type="integer", format="int64", minimum=1, maximum=100, default=10),
    parameter("page_token", "next_token of the page before.", **_TEXT),
    parameter("status", "Filter by run status.", **_TEXT),
    parameter("repository", "owner/repo, group/project or a full URL.", type="string", minLength=1, pattern=NAMED),
    parameter("platform", "The other form of the repository filter.", type="string", enum=list(PLATFORMS)),
    parameter(
        "data", "JSON object of a repository reference; needs platform, and does not go with repository.", **_TEXT
    ),
    parameter("date_from", "Start of the range, inclusive.", **_DATE),
    parameter("date_to", "End of the range, inclusive.", **_DATE),
]
_NAMES: Final = frozenset(describe_answers["name"] for describe_answers in _PARAMETERS)


@router.get("/external/runs", **describe_answers(200, RunListBody, 400, parameters=_PARAMETERS))
def list_runs(request: Request, context: RequestContext, caller: RunReader) -> dict[str, object]:
    """List runs (spec 2.5, 4.2): total_count counts after the filters, next_token is null on the last page."""
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in _NAMES:
            continue
        if name in query:
            raise bad_request("invalid_query", f"{name} may be given once")
        if "\0" in value:
            raise bad_request("invalid_query", f"{name} may not hold NUL")
        query[name] = value
    shown, following, total = list_page(context, caller, query)
    size = int(query.get("page_size", _DEFAULT_SIZE))
    bodies = [run.body for run in shown]
    return {"runs": bodies, "page_size": size, "next_token": following, "total_count": total}


def list_page(context: Context, caller: Caller, query: dict[str, str]) -> tuple[list[Run], str | None, int]:
    """Return a page of the caller's runs for query parameters, as `page_of` does (400: one of them is not valid)."""
    text = query.get("page_size", str(_DEFAULT_SIZE))
    size = int(text) if _INTEGER.fullmatch(text) else 0
    if not 1 <= size <= _MAX_SIZE:
        raise bad_request("invalid_page_size", f"page_size must be an integer from 1 to {_MAX_SIZE}")
    with context.database.read() as connection:
        connected = {host.host: host.platform for host in hosts.of(connection, caller.organization.id)}
        platform, path = _repository(query, connected)
        dates = (_instant(query, "date_from", round_up=True), _instant(query, "date_to", round_up=False))
        filters = Filters(caller.organization.id, query.get("status"), platform, path, *dates)
        return page_of(context, connection, filters, query.get("page_token"), size)


def page_of(
    context: Context, connection: sa.Connection, filters: Filters, token: str | None, size: int
) -> tuple[list[Run], str | None, int]:
    """Return a page's runs, the next page's token (None: it is the last), and how many match (400: a foreign token)."""
    after = None
    if token is not None:
        position = b""
        with contextlib.suppress(ValueError):
            position = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))[_MARK_BYTES:]
        # Base64 can spell the same bytes in several ways; only the issued spelling is accepted.
        issued = page_token(context.page_key, filters, position)
        if not hmac.compare_digest(issued.encode(), token.encode("utf-8", "replace")):
            text = "page_token must be the next_token of a page with the same filters; start again with the first page"
            raise bad_request("invalid_page_token", text)
        created_at, run_id = json.loads(position)
        after = int(created_at), str(run_id)
    one_more = runs.page(connection, filters, after, size + 1)
    page, following = one_more[:size], None
    if len(one_more) > size:
        last = json.dumps([page[-1].created_at, page[-1].id], separators=(",", ":")).encode()
        following = page_token(context.page_key, filters, last)
    return page, following, context.counts.count(connection, filters)


def _instant(query: dict[str, str], name: str, *, round_up: bool) -> int | None:
    if name not in query:
        return None
    try:
        return parse_rfc3339(query[name], round_up=round_up)
    except ValueError as error:
        hint = "; write '+' as %2B" if " " in query[name] else ""
        raise bad_request("invalid_date", f"{name}: {error}{hint}") from error


def _repository(query: dict[str, str], connected: dict[str, str]) -> tuple[str | None, str | None]:
    """Return the platform and the path to filter by; None for either matches any."""
    platform = query.get("platform")
    if platform is not None and platform not in PLATFORMS:
        raise bad_request("invalid_repository", f"platform must be one of {', '.join(PLATFORMS)}")
    try:
        if "data" in query:
            if platform is None or "repository" in query:
                raise bad_request("invalid_repository", "data needs platform, and does not go with repository")
            data = json.loads(query["data"])
            return platform, reference(platform, data if isinstance(data, dict) else {}).path
        if "repository" in query:
            if (place := location(query["repository"])) is not None:
                return platform or connected.get(place.host), place.path
            for form in PLATFORMS:
                with contextlib.suppress(ValueError):
                    return platform, checked_path(form, query["repository"])
            raise bad_request("invalid_repository", "repository must read owner/repo, group/project or a full URL")
    except json.JSONDecodeError as error:
        text = "data must be the JSON object of a repository reference"
        raise bad_request("invalid_repository", text) from error
    except (ValueError, RecursionError) as error:
        raise bad_request("invalid_repository", str(error)) from error
    return platform, None


def checked_branch(name: str | None) -> str | None:
    """Return the branch that a caller names; 400 if git would refuse the name."""
    fault = None if name is None else branch_fault(name)
    if fault is not None:
        raise bad_request("invalid_branch", f"branch_name: {fault}")
    return name


@router.post("/external/runs", **describe_answers(201, RunBody, 409, takes=RunStart))
async def start_run(http: Request, context: RequestContext, caller: RunWriter, start: NewRun) -> dict[str, object]:
    """Accept a run: after a 201 it will be executed, even if the service crashes (spec 4.3)."""
    starts = http.query_params.getlist("start_from")
    if len(starts) > 1 or not set(starts) <= set(_STARTS):
        raise bad_request("invalid_query", f"start_from must be one of {', '.join(_STARTS)}")
    if starts and start.run_id is None:
        raise bad_request("invalid_query", "start_from is for a run that is continued: name it in run_id")
    return await begin(context, caller, start, starts[0] if starts else None)


async def begin(context: Context, caller: Caller, start: RunStart, begin_with: str | None) -> dict[str, object]:
    """Accept a run, or a further turn of one.

    `begin_with` is the further turn's starting point: `patch`, `branch`, or None to choose by how the last turn ended.
    """

    def read() -> tuple[repositories.Repository, TurnRequest]:
        branch = checked_branch(start.branch_name)
        limit = context.settings.limits.metadata_bytes
        if start.metadata is not None and len(json.dumps(start.metadata, ensure_ascii=False).encode()) > limit:
            raise bad_request("metadata_too_large", f"metadata: may have at most {limit} bytes as JSON")
        try:
            asked_for = reference(start.repository.platform, start.repository.data)
        except ValueError as error:
            raise bad_request("invalid_repository", str(error)) from error
        with context.database.read() as connection:
            target = _first_target(
                connection, caller.organization.id, [asked_for], f"{asked_for.platform}:{asked_for.path}"
            )
        owner = caller.organization.id
        place = (target.platform, target.path, target.url)
        plain = TurnRequest(owner, DEFAULT_NAME, *place, branch, start.instructions, metadata=start.metadata)
        return target, replace(plain, trace_parent=context.tracer.parent(), caller=caller.token.alias)

    target, request = await run_in_threadpool(read)
    await _refuse_protected(context, target, request)

    def resume(run_id: str) -> Run:
        with context.database.write() as connection:
            run = run_of(connection, caller, run_id)
            if run.platform != target.platform or run.path.lower() != target.path.lower():
                text = f"the run {run_id} works on {run.platform}:{run.path}"
                raise bad_request("repository_mismatch", f"{text}; name that repository, or start another run")
            if request.branch is not None and request.branch != run.branch:
                text = f"the run {run_id} works on branch {run.branch!r}; leave branch_name out, or name it"
                raise bad_request("branch_mismatch", text)
            last = turns.last_begun(turns.of(connection, run_id))
            unpushed = None if last is None else last.kept_turn
            if begin_with == "patch" and unpushed is None:
                text = f"the run {run_id} left no change that was not pushed; continue it without start_from=patch"
                raise HttpError(409, "nothing_kept", text)
            is_wanted = last is not None and last.is_resumed_from_patch if begin_with is None else begin_with == "patch"
            continued = replace(request, from_turn=unpushed if is_wanted else None)
            resumed = runs.resume(connection, run, continued, context.clock())
            _check_quota(context, connection, request)
        if resumed is None:
            raise HttpError(409, "run_active", f"the run {run_id} is {run.status}; continue it when it has ended")
        context.wake()
        return resumed

    if start.run_id is None:
        return (await run_in_threadpool(accept, context, request)).body
    return (await run_in_threadpool(resume, start.run_id)).body


async def _refuse_protected(context: Context, target: repositories.Repository, request: TurnRequest) -> None:
    """Refuse a run on a protected branch; the worker checks again, since the default branch may change."""
    if not request.branch:
        return
    default = None
    if target.protected is None:
        owner, url = request.organization_id, request.url

        def find() -> str | None:
            with context.database.read() as connection:
                known = repositories.default_branch(connection, url)
                host = hosts.at(connection, owner, request.platform, url)
            if known is not None:
                return known
            try:
                branch = default_of(context.tokens.read_head(host, url, context.settings.probing.timeout_s))
            except GitCommandError:
                # The worker checks again before the run starts.
                return None
            if branch is not None:
                with context.database.write() as connection:
                    repositories.note_default_branch(connection, url, branch)
            return branch

        # From the database or the host; None without a default branch, or without an answer.
        default = await context.outgoing.run(find, owner)
    if repositories.is_protected(request.branch, default, target.protected):
        reason = "The operator of the service chooses which branches are protected"
        text = f"{request.branch} is protected; leave it out for a new branch, or name another. {reason}"
        raise bad_request("branch_protected", f"branch_name: {text}")


def run_of(connection: sa.Connection, caller: Caller, run_id: str) -> Run:
    """Return a run (404: the caller's organization has no such run)."""
    run = runs.by_id(connection, run_id)
    if run is None or run.organization_id != caller.organization.id:
        raise HttpError(404, "run_not_found", f"there is no run {run_id!r}; list the runs to find its id")
    return run


def accept(context: Context, request: TurnRequest) -> Run:
    with context.database.write() as connection:
        run = runs.accept(connection, request, context.clock())
        _check_quota(context, connection, request)
    context.wake()
    return run


def _check_quota(context: Context, connection: sa.Connection, request: TurnRequest) -> None:
    """Refuse a run beyond the limit, which is safe after storing it: an organization's runs are stored one by one."""
    limit = context.settings.limits.active_runs
    if runs.has_more_active(connection, request.organization_id, limit):
        fix = "wait until one has ended, or cancel one"
        text = f"the organization has {plural(limit, 'run')} queued or working; {fix}"
        raise bad_request("too_many_active_runs", text)


@router.post("/external/agents/{name}/runs", **describe_answers(201, ExecutionBody, takes=AgentStart))
async def start_agent(name: str, context: RequestContext, caller: RunWriter, start: NewAgentRun) -> dict[str, object]:
    """Accept an execution; its execution_id is the run_id of the run that carries it (spec 2.6, 4.4)."""

    def read() -> tuple[repositories.Repository, TurnRequest]:
        branch = checked_branch(start.branch_name)
        with context.database.read() as connection:
            agent = agents.by_name(connection, caller.organization.id, name)
            if agent is None:
                names = [agent.name for agent in agents.for_organization(connection, caller.organization.id)]
                near = get_close_matches(name, names, 1)
                advice = "ask the operator of the service to add it"
                if near:
                    advice = f"did you mean {near[0]!r}?"
                raise HttpError(404, "agent_not_found", f"there is no agent {name!r}; {advice}")
            # The repository by its configured name, full URL, `owner/repo` or `group/project`.
            owner, text = caller.organization.id, start.repository.strip()
            exact = repositories.by_name(connection, owner, text)
            platforms, path = [*PLATFORMS], text
            if exact is None and (where := location(text)) is not None:
                connected = hosts.of(connection, owner)
                platforms = [host.platform for host in connected if host.host == where.host]
                path = where.path
            candidates = []
            for platform in platforms:
                with contextlib.suppress(ValueError):
                    candidates.append(Reference(platform, checked_path(platform, path)))
            target = _first_target(connection, owner, candidates, text) if exact is None else exact
        try:
            values = inputs.check_inputs(agent.name, agent.options.inputs, start.inputs or {})
        except InputError as error:
            raise bad_request("invalid_input", str(error)) from error
        needs_list = not invocation.reads_document(agent)
        instructions = inputs.instructions(agent.name, agent.options.prompt, values, listed=needs_list)
        place = (target.platform, target.path, target.url)
        plain = TurnRequest(owner, agent.name, *place, branch or None, instructions, inputs={**values})
        return target, replace(plain, trace_parent=context.tracer.parent(), caller=caller.token.alias)

    target, request = await run_in_threadpool(read)
    await _refuse_protected(context, target, request)
    run = await run_in_threadpool(accept, context, request)
    body = {"agent_name": run.agent, "execution_id": run.id, "repository": run.path, "status": run.status}
    return {**body, "created_at": rfc3339(run.created_at)}


def _first_target(
    connection: sa.Connection, organization_id: str, candidates: list[Reference], name: str
) -> repositories.Repository:
    """Return the first candidate that is configured, and so exists, else on a connected host (400: there is none)."""
    for candidate in candidates:
        if configured := repositories.by_path(connection, organization_id, candidate.platform, candidate.path):
            return configured
    connected = hosts.of(connection, organization_id)
    for candidate in candidates:
        if url := hosts.clone_url(connected, candidate.platform, candidate.path):
            return repositories.Repository(name, candidate.platform, candidate.path, url)
    fix = "ask the operator of the service to add it, or to connect its code host"
    text = f"the repository {name!r} is neither configured nor on a connected code host; {fix}"
    raise bad_request("unknown_repository", text)
