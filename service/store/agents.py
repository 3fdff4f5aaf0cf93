"""Agents: named commands, each for one organization or for all organizations (spec 4.4)."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import sqlalchemy as sa

from service import ids
from service.agents.options import DEFAULT_NAME, REVIEWER, Agent
from service.clock import Micros
from service.store.database import lock_subject
from service.store.rows import delete, record_of, records_of, replace_rows
from service.store.runs import Run
from service.store.schema import agents


def save(connection: sa.Connection, agent: Agent, now: Micros) -> None:
    """Add an agent, or replace the one with the same name and owner."""
    lock_subject(connection, "agent", agent.organization_id or "", agent.name)
    put_all(connection, [agent], now)


def put_all(connection: sa.Connection, configured: Sequence[Agent], now: Micros) -> None:
    """Add or replace agents; the caller ensures that nothing else changes them at the same time."""
    rows = [asdict(agent) | {"id": f"agent_{ids.ulid(now)}"} for agent in configured]
    replace_rows(connection, agents, rows, [agents.c.name, agents.c.organization_id])


def remove(connection: sa.Connection, name: str, organization_id: str | None) -> bool:
    """Remove an organization's agent, or a shared one; False if there is none."""
    is_its_own = agents.c.organization_id.is_not_distinct_from(organization_id)
    return delete(connection, agents, agents.c.name == name, is_its_own) > 0


def by_name(connection: sa.Connection, organization_id: str, name: str) -> Agent | None:
    """Return the organization's agent of that name, or the shared one; the built-in reviewer needs no row."""
    if "\0" in name:
        # Names come from URLs and may hold NUL, which PostgreSQL refuses as a parameter.
        return None
    for_all = agents.c.organization_id.is_(None)
    condition = (agents.c.name == name, sa.or_(agents.c.organization_id == organization_id, for_all))
    agent = record_of(connection, Agent, agents, *condition, order=[for_all])
    return agent or (REVIEWER if name == DEFAULT_NAME else None)


def for_organization(connection: sa.Connection, organization_id: str) -> list[Agent]:
    """Return the agents that an organization may start, by name; its own agents hide shared ones of the same name."""
    for_all = agents.c.organization_id.is_(None)
    condition = sa.or_(agents.c.organization_id == organization_id, for_all)
    by_key = [REVIEWER, *records_of(connection, Agent, agents, condition, order=[sa.desc(for_all)])]
    return sorted({agent.name: agent for agent in by_key}.values(), key=lambda agent: agent.name)


def of_run(connection: sa.Connection, run: Run | None, fallback: str | None = None) -> Agent | None:
    """Return a run's agent with the permissions it has there; None if it is no longer configured.

    A fallback in its place keeps no session, publishes as the run's agent does, and leaves the turn to the next one.
    """
    agent = own = None if run is None else by_name(connection, run.organization_id, run.agent)
    if run is not None and fallback is not None:
        agent = by_name(connection, run.organization_id, fallback)
        changed: dict[str, object] = {"session": False}
        if own is not None:
            names = own.options.fallback
            behind = names[names.index(fallback) + 1 :] if fallback in names else ()
            changed |= {"on_completion": own.options.on_completion, "fallback": behind}
            changed |= {"fallback_after": own.options.fallback_after}
        agent = agent and replace(agent, options=agent.options.model_copy(update=changed))
    return agent.restrict() if agent and run and run.is_restricted else agent


def all_of(connection: sa.Connection) -> list[Agent]:
    return records_of(connection, Agent, agents, order=[agents.c.name])


def variables(connection: sa.Connection) -> set[str]:
    """Return the environment variables that agents may see, or that hold the keys of their models."""
    return {name for agent in all_of(connection) for name in agent.secret_names}
