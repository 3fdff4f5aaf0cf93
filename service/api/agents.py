"""The agents that a caller may start (docs/results.md; beside the specification)."""

from fastapi import APIRouter
from pydantic import BaseModel

from service.agents.inputs import AgentInput
from service.api.auth import Administrator
from service.api.context import RequestContext
from service.api.errors import documented
from service.store import agents

router = APIRouter(tags=["results"])


class AgentBody(BaseModel):
    """An agent, as OpenAPI describes it."""

    name: str
    description: str
    inputs: dict[str, AgentInput]


class AgentsBody(BaseModel):
    """All agents of an organization."""

    agents: list[AgentBody]


@router.get("/external/agents", response_model=None, responses={200: {"model": AgentsBody}, **documented()})
def list_agents(context: RequestContext, caller: Administrator) -> dict[str, object]:
    """Return the agents by name, each with its description and the inputs that it takes; no inputs: any."""
    with context.database.read() as connection:
        found = agents.for_organization(connection, caller.organization.id)
    return {
        "agents": [
            {
                "name": agent.name,
                "description": agent.options.description,
                "inputs": {name: one.model_dump() for name, one in agent.options.inputs.items()},
            }
            for agent in found
        ]
    }
