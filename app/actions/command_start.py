"""`runs start`, `continue` and `say`, and `agents`: start runs and continue them, with instructions from anywhere."""

import os
import re
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args

import click

from app.actions.command_writes import WriteCommand, WriteOptions, perform, print_waiting, send, write_options
from app.api.errors import ApiError
from app.api.requests import ContinueRun, Json, SayToRun, StartAgent, StartRun, When
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error, of_api_error
from app.cli.options import RUN_ID, CommandGroup, async_command, completion_of, options_of, reading
from app.cli.output import Column, facts
from app.cli.running import run
from app.engine.text import json_or_text
from app.runs.command_rows import RunLookup
from app.runs.command_wait import wait_options
from storage.errors import StorageError
from storage.records import Repository
from storage.records.organization import AgentInput, NamedAgent

_INPUT: Final = re.compile(r"[A-Za-z_][\w.-]*=", re.ASCII)
"""How an agent's input begins among the words."""
MAX_INSTRUCTIONS: Final = 1_000_000
"""The most bytes of instructions."""
BRANCH: Final = click.option("--branch", metavar="BRANCH", help="Work on this branch. Default: the service makes one.")
WORK: Final = options_of(
    click.option(
        "-f", "--file", type=click.Path(path_type=Path), metavar="FILE", help="Read the instructions from a file."
    ),
    BRANCH,
    click.option(
        "--metadata", multiple=True, metavar="KEY=VALUE", help="Repeatable; a VALUE that is JSON is sent as JSON."
    ),
    wait_options,
    write_options,
    click.argument("instructions", nargs=-1),
)
"""What `start` and `continue` share."""


def gather(words: tuple[str, ...], file: Path | None) -> str:
    """The instructions, from words, a file, stdin (`-`) or, if none is named, an editor; empty ones are refused."""
    if words and file is not None:
        raise command_error("usage", "Give the instructions as words or with --file, not both.")
    if words == ("-",) or str(file) == "-":
        text = _decode(sys.stdin.buffer.read(MAX_INSTRUCTIONS + 1), "stdin")
    elif words:
        text = " ".join(words)
    elif file is not None:
        try:
            with file.open("rb") as stream:
                text = _decode(stream.read(MAX_INSTRUCTIONS + 1), str(file))
        except OSError as error:
            raise command_error("usage", f"{file} cannot be read: {error.strerror}.") from error
    else:
        has_editor = bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))
        if not (has_editor or (sys.stdin.isatty() and sys.stdout.isatty())):
            raise command_error("usage", "Give the instructions as words, with - for stdin, or set EDITOR.")
        text = (click.edit("", extension=".md", require_save=True) or "").strip()
        if not text:
            raise command_error("usage", "The editor returned no instructions; nothing was sent.")
    if not text.strip():
        raise command_error("usage", "The instructions are empty: write what the agent should do.")
    return text


def mapping(pairs: tuple[str, ...]) -> dict[str, Json]:
    """KEY=VALUE options as an object; a value is parsed as JSON if it is JSON: `3` is a number, `three` is text."""
    values: dict[str, Json] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise command_error("usage", f"{text!r} is not KEY=VALUE.")
        if key in values:
            raise command_error("usage", f"{key!r} is given twice.")
        values[key] = json_or_text(value)
    return values


def _decode(content: bytes, origin: str) -> str:
    if len(content) > MAX_INSTRUCTIONS:
        raise command_error("usage", f"{origin} holds more than {MAX_INSTRUCTIONS} bytes of instructions.")
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise command_error("usage", f"{origin} is not UTF-8 text.") from error


@click.command("start", cls=WriteCommand, kind="run.start")
@click.option(
    "-R",
    "--repository",
    callback=reading(Repository.parse),
    required=True,
    metavar="REPO",
    shell_complete=completion_of("repositories"),
    help="owner/repo, or gitlab:group/project.",
)
@click.option("--agent", metavar="NAME", help="Use this named agent. Default: the service chooses.")
@WORK
@click.pass_obj
def start(
    invocation: Invocation,
    /,
    *,
    repository: Repository,
    agent: str | None,
    instructions: tuple[str, ...],
    file: Path | None,
    branch: str | None,
    metadata: tuple[str, ...],
    **options: Any,
) -> int:
    """Start a run with INSTRUCTIONS: words, - for stdin, --file, or none to write them in $EDITOR."""
    if agent is not None and metadata:
        raise command_error("usage", "A named agent takes no metadata: leave out --metadata, or --agent.")
    text = gather(instructions, file)
    request: StartRun | StartAgent = StartRun(text, repository, branch, mapping(metadata))
    if agent is not None:
        request = StartAgent(agent, repository.path, branch, {"instructions": text})
    write = WriteOptions(**options)

    async def work() -> int:
        async with invocation.writer(dry_run=write.dry_run) as engine:
            labels: set[str] = set()
            with suppress(StorageError):  # A write needs no cache.
                labels = {label.casefold() for label in await engine.cache.repositories()}
            report = await perform(invocation, engine, request, write)
            if labels and repository.label.casefold() not in labels:
                invocation.warn(
                    f"No run of {repository.label} is known here. A service may accept a run for a repository that "
                    "it does not have; that run fails when it begins."
                )
        return report()

    return run(invocation, work)


@click.command("continue", cls=WriteCommand, kind="run.continue")
@RUN_ID
@click.option(
    "--from-patch", "start_from", flag_value="patch", help="Begin with the unpushed changes of the previous turn."
)
@click.option(
    "--from-branch",
    "start_from",
    flag_value="branch",
    help="Begin with only the branch. Default: with the unpushed changes too, unless that turn was cancelled.",
)
@click.option("--when-ended", is_flag=True, help="If it is active, send this once it has ended: a console or bot does.")
@WORK
@click.pass_obj
def continue_run(
    invocation: Invocation,
    /,
    *,
    run_id: str,
    start_from: Literal["patch", "branch"] | None,
    when_ended: bool,
    instructions: tuple[str, ...],
    file: Path | None,
    branch: str | None,
    metadata: tuple[str, ...],
    **options: Any,
) -> int:
    """Continue the conversation of RUN_ID; its repository is looked up."""
    write = WriteOptions(**options)
    if when_ended and write.waits:
        raise command_error(
            "usage", "Give --when-ended or --wait, not both: nothing is sent yet that could be waited for."
        )
    text = gather(instructions, file)
    values = mapping(metadata)

    async def work() -> int:
        async with invocation.writer(dry_run=write.dry_run) as engine:
            lookup = RunLookup(engine)
            run = await lookup.to_change(run_id, invocation.output.note)
            request = ContinueRun(run.run_id, text, run.repository, branch, values, start_from)
            if when_ended and not write.dry_run:
                run = await lookup.find_current(run.run_id)
            if not when_ended or write.dry_run or run.status in await engine.cache.final_statuses():
                report = await perform(invocation, engine, request, write)
            else:
                report = partial(print_waiting, invocation, await engine.follow_ups.wait(request, write.key))
        return report()

    return run(invocation, work)


@click.command("say", cls=WriteCommand, kind="run.say")
@RUN_ID
@click.option(
    "--when",
    type=click.Choice(get_args(When)),
    default="now",
    show_default=True,
    help="now: while its agent works; end: when its turn has ended; stop: stop the turn, then deliver it.",
)
@write_options
@click.argument("words", nargs=-1)
@async_command
async def say(invocation: Invocation, /, *, run_id: str, when: When, words: tuple[str, ...], **options: Any) -> int:
    """Send WORDS (- for stdin) to the agent of an active run. With --when end or stop, they start its next turn."""
    text = gather(words, None)
    write = WriteOptions(**options)
    async with invocation.writer(dry_run=write.dry_run) as engine:
        run = await RunLookup(engine).to_change(run_id, invocation.output.note)
        report = await perform(invocation, engine, SayToRun(run.run_id, text, when), write)
    return report()


agents = CommandGroup("agents", help="List and start named agents.")


def _input(declared: AgentInput) -> str:
    words = "|".join(declared.choices) or declared.type
    if declared.is_required:
        return f"{declared.name}={words}"
    return f"[{declared.name}={declared.default or words}]"


_COLUMNS: Final[tuple[Column[NamedAgent], ...]] = (
    Column("agent", lambda agent: agent.name, "name"),
    Column("inputs", lambda agent: " ".join(map(_input, agent.inputs)), "inputs"),
    Column("description", lambda agent: agent.description, "description"),
)


@agents.command("list")
@async_command
async def list_agents(invocation: Invocation, /) -> int:
    """List the agents that may be started, with the inputs that they take; [INPUT] may be left out.

    A service need not offer this list: the specification has none.
    """
    async with invocation.engine(needs_token=True) as engine:
        try:
            offered = await engine.client.agents()
        except ApiError as error:
            hint = "Ask its operator for the names; start one with: runwarden agents start NAME"
            raise of_api_error(error, hint=hint) from error
    documents = []
    for agent in offered:
        inputs = {
            declared.name: facts(declared, "type description default choices") | {"required": declared.is_required}
            for declared in agent.inputs
        }
        documents.append(facts(agent, "name description") | {"inputs": inputs})
    invocation.output.listing("agents", documents, _COLUMNS, offered)
    return Exit.DONE


@agents.command("start", cls=WriteCommand, kind="agent.start")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[WORDS]... [KEY=VALUE]...")
@click.option(
    "-R",
    "--repository",
    required=True,
    metavar="REPO",
    shell_complete=completion_of("repositories"),
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
    values = mapping((*inputs, *pairs))
    text = " ".join(word for word in words if not _INPUT.match(word))
    if text and "instructions" in values:
        raise command_error("usage", "Give the instructions as words or as the input, not both.")
    if text:
        values = {"instructions": text, **values}
    # The spec's repository references have no `gitlab:` prefix, so it is removed.
    request = StartAgent(name, repository.removeprefix("gitlab:"), branch, values)
    write = WriteOptions(**options)
    code = await send(invocation, request, write)
    if code == Exit.DONE and not (write.waits or write.dry_run) and not invocation.output.format.is_json:
        invocation.output.note("Accepted. The API does not show executions; see: runwarden runs list")
    return code
