"""POST /external/agents/{name}/runs: start a named agent (spec 4.4)."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends

from service.api import targets
from service.api.auth import Administrator
from service.api.bodies import AgentStart, ReadBody, schema_of
from service.api.context import Services
from service.api.failures import ApiFailureError, documented
from service.api.runs import accept, checked_branch
from service.clock import rfc3339
from service.store import agents
from service.store.runs import Order

router = APIRouter()

_INSTRUCTIONS: Final = "Do what you are configured for."


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
            raise ApiFailureError(
                404, "agent_not_found", f"there is no agent {name!r}; add it with runwarden service agent add"
            )
        target = targets.by_text(connection, caller.organization.id, start.repository)
    inputs = start.inputs or {}
    asked = inputs.get("instructions")
    order = Order(
        organization_id=caller.organization.id,
        agent=agent.name,
        platform=target.reference.platform,
        path=target.reference.path,
        url=target.url,
        branch=branch or None,
        instructions=asked if isinstance(asked, str) and asked.strip() else f"{agent.name}: {_INSTRUCTIONS}",
        inputs=inputs,
    )
    run = accept(context, order)
    return {
        "agent_name": run.agent,
        "execution_id": run.id,
        "repository": run.path,
        "status": run.status,
        "created_at": rfc3339(run.created_at),
    }
