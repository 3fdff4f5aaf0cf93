"""`runwarden agents`: starting the service's named agents (spec 4.4)."""

from typing import Any

import click

from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.options import CommandGroup, mapping
from app.cli.runs.wait import wait_options
from app.cli.writes import WriteCommand, WriteOptions, submit, write_options


@click.group(cls=CommandGroup)
def agents() -> None:
    """Start named agents."""


@agents.command("start", cls=WriteCommand, kind="agent.start")
@click.argument("name")
@click.argument("more_inputs", nargs=-1, metavar="")
@click.option(
    "-R", "--repository", required=True, metavar="REPO", help="owner/repo, group/project, a URL, or a configured name."
)
@click.option("--branch", metavar="BRANCH", help="Work on this branch. Default: the service makes one.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="KEY=VALUE ...",
    help="Repeatable, or several after one; a VALUE that is JSON is sent as JSON.",
)
@wait_options
@write_options
@click.pass_obj
def start(
    invocation: Invocation,
    /,
    *,
    name: str,
    repository: str,
    branch: str | None,
    inputs: tuple[str, ...],
    more_inputs: tuple[str, ...],
    **options: Any,
) -> int:
    """Start the agent NAME on a repository.

    The API cannot read an execution back. --wait looks for the run that has the execution's id, and waits for its end.
    """
    from app.api.requests import StartAgent

    if more_inputs and not inputs:
        raise click.UsageError(f"Got unexpected extra argument ({more_inputs[0]})")
    # The spec's forms of a repository have no `gitlab:`: it is sent without.
    request = StartAgent(name, repository.removeprefix("gitlab:"), branch, mapping((*inputs, *more_inputs)))
    write = WriteOptions.of(**options)
    code = submit(invocation, request, write)
    if code == Exit.DONE and write == WriteOptions(write.key) and not invocation.output.format.is_json:
        invocation.output.note("Accepted. The API cannot read an execution back; see: runwarden runs list")
    return code
