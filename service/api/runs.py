"""POST /external/runs: start a run, or give one its next turn (spec 4.3)."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from service.api import targets
from service.api.auth import Administrator
from service.api.bodies import ReadBody, RunStart, schema_of
from service.api.context import Context, Services
from service.api.failures import ApiFailureError, bad_request, documented
from service.api.targets import Target
from service.branches import branch_fault
from service.clock import rfc3339
from service.reference import reference
from service.store import runs
from service.store.agents import DEFAULT_NAME
from service.store.runs import Order, Run

router = APIRouter()


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
    order = Order(
        organization_id=caller.organization.id,
        agent=DEFAULT_NAME,
        platform=target.reference.platform,
        path=target.reference.path,
        url=target.url,
        branch=branch,
        instructions=start.instructions,
        metadata=start.metadata,
    )
    run = accept(context, order) if start.run_id is None else _resume(context, start.run_id, order, target)
    return run_body(run)


def accept(context: Context, order: Order) -> Run:
    """Store a new run and tell the worker."""
    with context.database.write() as connection:
        run = runs.accept(connection, order, context.clock())
    context.wake()
    return run


def _resume(context: Context, run_id: str, order: Order, target: Target) -> Run:
    with context.database.write() as connection:
        found = runs.by_id(connection, run_id)
        if found is None or found.organization_id != order.organization_id:
            raise ApiFailureError(404, "run_not_found", f"there is no run {run_id!r}; list the runs to find its id")
        _check_same(found, order, target)
        resumed = runs.resume(connection, found, order, context.clock())
    if resumed is None:
        raise ApiFailureError(409, "run_active", f"the run {run_id} is {found.status}; continue it when it has ended")
    context.wake()
    return resumed


def _check_same(run: Run, order: Order, target: Target) -> None:
    if run.platform != target.reference.platform or run.path.lower() != target.reference.path.lower():
        raise bad_request(
            "repository_mismatch",
            f"the run {run.id} works on {run.platform}:{run.path}; name that repository, or start another run",
        )
    if order.branch is not None and order.branch != run.branch:
        raise bad_request(
            "branch_mismatch", f"the run {run.id} works on branch {run.branch!r}; leave branch_name out, or name it"
        )
