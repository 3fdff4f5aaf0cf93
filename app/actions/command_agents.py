"""`agents list` and `agents start`: agents that the service knows by name."""

import re
from typing import Any, Final

import click

from app.actions.command_start import BRANCH, mapping, with_words
from app.actions.command_writes import WriteCommand, WriteOptions, send, write_options
from app.api.errors import ApiError
from app.api.requests import StartAgent
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import CommandGroup, FactCommand, async_command, completed
from app.cli.output import Column, facts
from app.runs.command_wait import wait_options
from storage.records.results import AgentInput, NamedAgent

_INPUT: Final = re.compile(r"[A-Za-z_][\w.-]*=", re.ASCII)
"""How an input begins among the words."""


@click.group(cls=CommandGroup)
def agents() -> None:
    """List and start named agents."""


def _input(one: AgentInput) -> str:
    words = "|".join(one.choices) or one.type
    return f"{one.name}={words}" if one.is_required else f"[{one.name}={one.default or words}]"


_COLUMNS: Final[tuple[Column[NamedAgent], ...]] = (
    Column("agent", lambda agent: agent.name, "name"),
    Column("inputs", lambda agent: " ".join(map(_input, agent.inputs)), "inputs"),
    Column("description", lambda agent: agent.description, "description"),
)


@agents.command("list", cls=FactCommand)
@async_command
async def list_agents(invocation: Invocation, /) -> int:
    """List the agents that may be started, with the inputs that they take; [INPUT] may be left out.

    A service need not offer this list: the specification has none.
    """
    async with invocation.engine(needs_token=True) as engine:
        try:
            found = await engine.client.agents()
        except ApiError as error:
            hint = "Ask its operator for the names; start one with: runwarden agents start NAME"
            raise CommandFailedError(of_api_error(error, hint=hint)) from error
    documents = [
        facts(agent, "name description")
        | {
            "inputs": {
                one.name: facts(one, "type description default choices") | {"required": one.is_required}
                for one in agent.inputs
            }
        }
        for agent in found
    ]
    invocation.output.listing("agents", documents, _COLUMNS, found)
    return Exit.DONE


@agents.command("start", cls=WriteCommand, kind="agent.start")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[WORDS]... [KEY=VALUE]...")
@click.option(
    "-R",
    "--repository",
    required=True,
    metavar="REPO",
    shell_complete=completed("repositories"),
    help="owner/repo, group/project, a URL, or a configured name.",
)
@BRANCH
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="KEY=VALUE ...",
    help="Repeatable, or several after one; a VALUE that is JSON is sent as JSON.",
)
@wait_options
@write_options
@async_command
async def start_agent(
    invocation: Invocation,
    /,
    *,
    name: str,
    repository: str,
    branch: str | None,
    inputs: tuple[str, ...],
    words: tuple[str, ...],
    **options: Any,
) -> int:
    """Start the agent NAME on a repository. Instructions may follow in WORDS, sent as the input `instructions`.

    The API cannot read an execution back. --wait looks for the run that has the execution's id, and
    waits until it finishes.
    """
    pairs = tuple(word for word in words if _INPUT.match(word))
    if pairs and not inputs:
        text = f"{pairs[0]!r} looks like an input: write --input {pairs[0]}, or quote the instructions as one word"
        raise click.UsageError(text)
    words_given = " ".join(word for word in words if not _INPUT.match(word))
    # The spec's forms of a repository have no `gitlab:`: it is sent without.
    given = with_words(mapping((*inputs, *pairs)), words_given)
    request = StartAgent(name, repository.removeprefix("gitlab:"), branch, given)
    write = WriteOptions(**options)
    code = await send(invocation, request, write)
    if code == Exit.DONE and not (write.waits or write.dry_run) and not invocation.output.format.is_json:
        invocation.output.note("Accepted. The API does not show executions; see: runwarden runs list")
    return code
