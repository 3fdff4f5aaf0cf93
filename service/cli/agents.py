"""`agent`: the commands that do the work."""

import shlex
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros
from service.entries import AgentEntry
from service.setup import SetupError, find_organization, put_agent
from service.store import agents
from service.store.agents import Agent


@click.group("agent")
def command() -> None:
    """Agents."""


def _document(one: Agent, owner: str | None) -> dict[str, Any]:
    return {
        "name": one.name,
        "organization_id": owner,
        "argv": list(one.argv),
        "timeout_s": one.timeout_s,
        "network": one.network,
        "environment": list(one.environment),
    }


def _line(one: Agent, owner: str | None) -> str:
    return f"{one.name}  {owner or 'everybody'}  {one.timeout_s:g} s  {shlex.join(one.argv)}"


@command.command("add")
@click.argument("name")
@click.option("--argv", required=True, help="The command, quoted as in a shell; {python} is this interpreter.")
@click.option("--org", "organization", help="The one organization it serves; all of them if left out.")
@click.option("--timeout-s", type=float, default=agents.DEFAULT_TIMEOUT_S, show_default=True)
@click.option("--network/--no-network", default=False, show_default=True)
@click.option("--env", "environment", multiple=True, help="A variable of the service that the agent may see.")
@administers
def add(desk: Desk, argv: str, **options: Any) -> None:
    """Configure an agent, or change the one of its name."""
    try:
        words = shlex.split(argv)
    except ValueError as error:
        raise click.UsageError(f"--argv: {error}") from error
    entry = AgentEntry.model_validate({"argv": words, **options})
    with desk.write(create=True) as connection:
        made = put_agent(connection, entry, now_micros())
    desk.show(_document(made, entry.organization), [_line(made, entry.organization)])


@command.command("list")
@administers
def list_all(desk: Desk) -> None:
    """List agents; the reviewer is always there."""
    with desk.read() as connection:
        found = agents.all_of(connection)
    if not any(owner is None and agent.name == agents.DEFAULT_NAME for owner, agent in found):
        found.insert(0, (None, agents.REVIEWER))
    desk.show(
        {"agents": [_document(agent, owner) for owner, agent in found]}, [_line(agent, owner) for owner, agent in found]
    )


@command.command("remove")
@click.argument("name")
@click.option("--org", "slug", help="The organization whose agent it is; everybody's if left out.")
@administers
def remove(desk: Desk, name: str, slug: str | None) -> None:
    """Forget an agent; runs under way end as they would. Without a `reviewer` of yours, the built-in one is back."""
    with desk.write() as connection:
        owner = None if slug is None else find_organization(connection, slug).id
        if not agents.remove(connection, name, owner):
            whose = "everybody's" if slug is None else f"of {slug}"
            raise SetupError(f"there is no agent {name!r} {whose}; list them with: runwarden service agent list")
    desk.show({"name": name, "state": "removed"}, [f"{name} removed"])
