"""Starting runs: POST /external/runs and POST /external/agents/{name}/runs (spec 2.3, 4.3, 4.4)."""

import contextlib
import json
import tempfile
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.agents import inputs, invocation
from service.agents.inputs import InputError
from service.api.answers import ExecutionBody, RunBody
from service.api.auth import Caller, RunWriter
from service.api.bodies import AgentStart, ReadBody, RunStart, schema_of
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request, documented
from service.clock import rfc3339
from service.execution.git import GitCommandError, GitRunner
from service.execution.mirror import default_of
from service.hosts.tokens import HostLogin
from service.reference import PLATFORMS, Reference, branch_fault, checked_path, location, reference
from service.store import agents, hosts, repositories, runs, turns
from service.store.agents import DEFAULT_NAME
from service.store.database import Database
from service.store.repositories import Repository
from service.store.runs import Run, TurnRequest
from service.text import plural

_STARTS: Final = ("patch", "branch")
"""The values of `start_from`, an extension of the specification (docs/dev/api.md)."""
router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Target:
    """A repository on which a run can work."""

    reference: Reference
    url: str
    protected: tuple[str, ...] | None = None
    """Patterns of branches that no run may work on; None protects only the default branch."""


def checked_branch(name: str | None) -> str | None:
    """Return the branch that a caller names; 400 if git would refuse the name."""
    fault = None if name is None else branch_fault(name)
    if fault is not None:
        raise bad_request("invalid_branch", f"branch_name: {fault}")
    return name


@router.post(
    "/external/runs",
    status_code=201,
    response_model=None,
    openapi_extra=schema_of(RunStart),
    responses={201: {"model": RunBody}, **documented(400, 409, 413, 415)},
)
async def start_run(
    http: Request, context: RequestContext, caller: RunWriter, start: Annotated[RunStart, Depends(ReadBody(RunStart))]
) -> dict[str, object]:
    """Accept a run: after a 201 it will be executed, even if the service crashes (spec 4.3)."""
    given = http.query_params.getlist("start_from")
    if len(given) > 1 or not set(given) <= set(_STARTS):
        raise bad_request("invalid_query", f"start_from must be one of {', '.join(_STARTS)}")
    if given and start.run_id is None:
        raise bad_request("invalid_query", "start_from is for a run that is continued: name it in run_id")
    return await begin(context, caller, start, given[0] if given else None)


async def begin(context: Context, caller: Caller, start: RunStart, begin_with: str | None) -> dict[str, object]:
    """Accept a run, or a further turn of one.

    `begin_with` is the further turn's starting point: `patch`, `branch`, or None to choose by how the last turn ended.
    """
    target, request = await run_in_threadpool(_run_request, context, caller, start)
    await _refuse_protected(context, target, request)
    if start.run_id is None:
        return (await run_in_threadpool(accept, context, request)).body
    return (await run_in_threadpool(_resume, context, start.run_id, request, target, begin_with)).body


def _run_request(context: Context, caller: Caller, start: RunStart) -> tuple[_Target, TurnRequest]:
    branch = checked_branch(start.branch_name)
    limit = context.settings.limits.metadata_bytes
    if start.metadata is not None and len(json.dumps(start.metadata, ensure_ascii=False).encode()) > limit:
        raise bad_request("metadata_too_large", f"metadata: may have at most {limit} bytes as JSON")
    try:
        wanted = reference(start.repository.platform, start.repository.data)
    except ValueError as error:
        raise bad_request("invalid_repository", str(error)) from error
    with context.database.read() as connection:
        target = _first_target(connection, caller.organization.id, [wanted], f"{wanted.platform}:{wanted.path}")
    return target, _request(context, caller, target, DEFAULT_NAME, branch, start.instructions, metadata=start.metadata)


def _request(
    context: Context, caller: Caller, target: _Target, agent: str, branch: str | None, instructions: str, **more: Any
) -> TurnRequest:
    owner, where = caller.organization.id, target.reference
    asked = TurnRequest(owner, agent, where.platform, where.path, target.url, branch, instructions, **more)
    return replace(asked, trace_parent=context.tracer.parent(), caller=caller.token.alias)


async def _refuse_protected(context: Context, target: _Target, request: TurnRequest) -> None:
    """Refuse a run on a protected branch; the worker checks again, since the default branch may change."""
    if not request.branch:
        return
    default = None
    if target.protected is None:
        owner = request.organization_id
        timeout_s = context.settings.probing.timeout_s
        ask = partial(_default_branch, context.database, owner, request.platform, request.url, timeout_s)
        default = await context.outgoing.run(ask, owner)
    if repositories.is_protected(request.branch, default, target.protected):
        raise bad_request(
            "branch_protected",
            f"branch_name: {request.branch} is protected; leave it out for a new branch, or name another. "
            "The operator of the service chooses which branches are protected",
        )


def _default_branch(database: Database, organization_id: str, platform: str, url: str, timeout_s: float) -> str | None:
    """Return a repository's default branch, from the database or its host; None if there is none, or no answer."""
    with database.read() as connection:
        known = repositories.default_branch(connection, url)
        host = hosts.at(connection, organization_id, platform, url)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="runwarden-branch-") as home:
        try:
            git = GitRunner(Path(home), timeout_s, login=HostLogin(host, url))
            default = default_of(git("ls-remote", "--symref", "--", url, "HEAD"))
        except GitCommandError:
            # The worker asks again before the run starts.
            return None
    if default is not None:
        with database.write() as connection:
            repositories.note_default_branch(connection, url, default)
    return default


def no_run(run_id: str) -> HttpError:
    """Return the 404 for a run that does not exist or belongs to another organization."""
    return HttpError(404, "run_not_found", f"there is no run {run_id!r}; list the runs to find its id")


def accept(context: Context, request: TurnRequest) -> Run:
    """Store a new run and wake the worker."""
    with context.database.write() as connection:
        run = runs.accept(connection, request, context.clock())
        _check_quota(context, connection, request)
    context.wake()
    return run


def _check_quota(context: Context, connection: sa.Connection, request: TurnRequest) -> None:
    """Refuse a run beyond the limit, which is safe after storing it: an organization's runs are stored one by one."""
    limit = context.settings.limits.active_runs
    if runs.has_more_active(connection, request.organization_id, limit):
        raise bad_request(
            "too_many_active_runs",
            f"the organization has {plural(limit, 'run')} queued or working; wait until one has ended, or cancel one",
        )


def _resume(context: Context, run_id: str, request: TurnRequest, target: _Target, begin_with: str | None) -> Run:
    with context.database.write() as connection:
        run = runs.by_id(connection, run_id)
        if run is None or run.organization_id != request.organization_id:
            raise no_run(run_id)
        if run.platform != target.reference.platform or run.path.lower() != target.reference.path.lower():
            raise bad_request(
                "repository_mismatch",
                f"the run {run_id} works on {run.platform}:{run.path}; name that repository, or start another run",
            )
        if request.branch is not None and request.branch != run.branch:
            text = f"the run {run_id} works on branch {run.branch!r}; leave branch_name out, or name it"
            raise bad_request("branch_mismatch", text)
        last = turns.last_begun(turns.of(connection, run_id))
        kept = None if last is None else last.kept_turn
        if begin_with == "patch" and kept is None:
            text = f"the run {run_id} left no change that was not pushed; continue it without start_from=patch"
            raise HttpError(409, "nothing_kept", text)
        is_wanted = last is not None and last.is_resumed_from_patch if begin_with is None else begin_with == "patch"
        request = replace(request, from_turn=kept if is_wanted else None)
        resumed = runs.resume(connection, run, request, context.clock())
        _check_quota(context, connection, request)
    if resumed is None:
        raise HttpError(409, "run_active", f"the run {run_id} is {run.status}; continue it when it has ended")
    context.wake()
    return resumed


def _agent_request(context: Context, caller: Caller, name: str, start: AgentStart) -> tuple[_Target, TurnRequest]:
    branch = checked_branch(start.branch_name)
    with context.database.read() as connection:
        agent = agents.by_name(connection, caller.organization.id, name)
        if agent is None:
            known = [one.name for one in agents.for_organization(connection, caller.organization.id)]
            near = get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}?" if near else "ask the operator of the service to add it"
            raise HttpError(404, "agent_not_found", f"there is no agent {name!r}; {advice}")
        target = _target_by_text(connection, caller.organization.id, start.repository)
    try:
        values = inputs.checked(agent.name, agent.options.inputs, start.inputs or {})
    except InputError as error:
        raise bad_request("invalid_input", str(error)) from error
    listed = not invocation.reads_document(agent)
    instructions = inputs.instructions(agent.name, agent.options.prompt, values, listed=listed)
    return target, _request(context, caller, target, agent.name, branch or None, instructions, inputs=values)


@router.post(
    "/external/agents/{name}/runs",
    status_code=201,
    openapi_extra=schema_of(AgentStart),
    response_model=None,
    responses={201: {"model": ExecutionBody}, **documented(400, 413, 415)},
)
async def start_agent(
    name: str, context: RequestContext, caller: RunWriter, start: Annotated[AgentStart, Depends(ReadBody(AgentStart))]
) -> dict[str, object]:
    """Accept an execution; its execution_id is the run_id of the run that carries it (spec 2.6, 4.4)."""
    target, request = await run_in_threadpool(_agent_request, context, caller, name, start)
    await _refuse_protected(context, target, request)
    run = await run_in_threadpool(accept, context, request)
    return {
        "agent_name": run.agent,
        "execution_id": run.id,
        "repository": run.path,
        "status": run.status,
        "created_at": rfc3339(run.created_at),
    }


def _target_by_text(connection: sa.Connection, organization_id: str, text: str) -> _Target:
    """Find a repository from its configured name, full URL, `owner/repo` or `group/project`.

    Raises:
        HttpError: 400, there is no such repository.
    """
    text = text.strip()
    exact = repositories.by_name(connection, organization_id, text) or repositories.by_url(
        connection, organization_id, text
    )
    if exact is not None:
        return _target(exact)
    platforms, path = [*PLATFORMS], text
    if (where := location(text)) is not None:
        connected = hosts.of(connection, organization_id)
        platforms, path = [host.platform for host in connected if host.host == where.host], where.path
    candidates = []
    for platform in platforms:
        with contextlib.suppress(ValueError):
            candidates.append(Reference(platform, checked_path(platform, path)))
    return _first_target(connection, organization_id, candidates, text)


def _first_target(connection: sa.Connection, organization_id: str, candidates: list[Reference], named: str) -> _Target:
    """Return the first candidate that is configured, and so exists, otherwise the first on a connected host.

    Raises:
        HttpError: 400, there is neither.
    """
    for one in candidates:
        if configured := repositories.by_path(connection, organization_id, one.platform, one.path):
            return _target(configured)
    connected = hosts.of(connection, organization_id)
    for one in candidates:
        if url := hosts.clone_url(connected, one.platform, one.path):
            return _Target(one, url)
    raise bad_request(
        "unknown_repository",
        f"the repository {named!r} is neither configured nor on a connected code host; "
        "ask the operator of the service to add it, or to connect its code host",
    )


def _target(repository: Repository) -> _Target:
    return _Target(Reference(repository.platform, repository.path), repository.url, repository.protected)
