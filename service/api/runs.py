"""Starting runs: POST /external/runs and POST /external/agents/{name}/runs (spec 4.3, 4.4)."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends

from service.api import targets
from service.api.auth import Administrator
from service.api.bodies import AgentStart, ReadBody, RunStart, schema_of
from service.api.context import Context, Services
from service.api.errors import ApiError, bad_request, documented
from service.api.targets import Target
from service.clock import rfc3339
from service.reference import branch_fault, reference
from service.store import agents, runs
from service.store.agents import DEFAULT_NAME
from service.store.runs import Run, TurnRequest

router = APIRouter()
_INSTRUCTIONS: Final = "Do what you are configured for."


def run_body(run: Run) -> dict[str, Any]:
    """Return a run as it stands in a body (spec 2.4)."""
    return {
        "run_id": run.id,
        "status": run.status,
        "branch_name": run.branch,
        "repository": run.reference.body,
        "created_at": rfc3339(run.created_at),
        "updated_at": rfc3339(run.updated_at),
    }


def checked_branch(name: str | None) -> str | None:
    """Return the branch a caller names; 400 when git would not take it."""
    fault = None if name is None else branch_fault(name)
    if fault is not None:
        raise bad_request("invalid_branch", f"branch_name: {fault}")
    return name


@router.post(
    "/external/runs", status_code=201, openapi_extra=schema_of(RunStart), responses=documented(400, 409, 413, 415)
)
def start_run(
    context: Services, caller: Administrator, start: Annotated[RunStart, Depends(ReadBody(RunStart))]
) -> dict[str, Any]:
    """Accept a run: what this answers with 201 will be executed, whatever happens to the service (spec 4.3)."""
    branch = checked_branch(start.branch_name)
    try:
        wanted = reference(start.repository.platform, start.repository.data)
    except ValueError as error:
        raise bad_request("invalid_repository", str(error)) from error
    with context.database.read() as connection:
        target = targets.by_reference(connection, caller.organization.id, wanted)
    request = TurnRequest(
        organization_id=caller.organization.id,
        agent=DEFAULT_NAME,
        platform=target.reference.platform,
        path=target.reference.path,
        url=target.url,
        branch=branch,
        instructions=start.instructions,
        metadata=start.metadata,
    )
    run = accept(context, request) if start.run_id is None else _resume(context, start.run_id, request, target)
    return run_body(run)


def accept(context: Context, request: TurnRequest) -> Run:
    """Store a new run and tell the worker."""
    with context.database.write() as connection:
        run = runs.accept(connection, request, context.clock())
    context.wake()
    return run


def _resume(context: Context, run_id: str, request: TurnRequest, target: Target) -> Run:
    with context.database.write() as connection:
        found = runs.by_id(connection, run_id)
        if found is None or found.organization_id != request.organization_id:
            raise ApiError(404, "run_not_found", f"there is no run {run_id!r}; list the runs to find its id")
        _check_same(found, request, target)
        resumed = runs.resume(connection, found, request, context.clock())
    if resumed is None:
        raise ApiError(409, "run_active", f"the run {run_id} is {found.status}; continue it when it has ended")
    context.wake()
    return resumed


def _check_same(run: Run, request: TurnRequest, target: Target) -> None:
    if run.platform != target.reference.platform or run.path.lower() != target.reference.path.lower():
        raise bad_request(
            "repository_mismatch",
            f"the run {run.id} works on {run.platform}:{run.path}; name that repository, or start another run",
        )
    if request.branch is not None and request.branch != run.branch:
        raise bad_request(
            "branch_mismatch", f"the run {run.id} works on branch {run.branch!r}; leave branch_name out, or name it"
        )


@router.post(
    "/external/agents/{name}/runs",
    status_code=201,
    openapi_extra=schema_of(AgentStart),
    responses=documented(400, 413, 415),
)
def start_agent(
    name: str, context: Services, caller: Administrator, start: Annotated[AgentStart, Depends(ReadBody(AgentStart))]
) -> dict[str, Any]:
    """Accept an execution; its execution_id is the run_id of the run that carries it (spec 2.6, 4.4)."""
    branch = checked_branch(start.branch_name)
    with context.database.read() as connection:
        agent = agents.by_name(connection, caller.organization.id, name)
        if agent is None:
            raise ApiError(
                404, "agent_not_found", f"there is no agent {name!r}; add it with runwarden service agent add"
            )
        target = targets.by_text(connection, caller.organization.id, start.repository)
    inputs = start.inputs or {}
    asked = inputs.get("instructions")
    request = TurnRequest(
        organization_id=caller.organization.id,
        agent=agent.name,
        platform=target.reference.platform,
        path=target.reference.path,
        url=target.url,
        branch=branch or None,
        instructions=asked if isinstance(asked, str) and asked.strip() else f"{agent.name}: {_INSTRUCTIONS}",
        inputs=inputs,
    )
    run = accept(context, request)
    return {
        "agent_name": run.agent,
        "execution_id": run.id,
        "repository": run.path,
        "status": run.status,
        "created_at": rfc3339(run.created_at),
    }
