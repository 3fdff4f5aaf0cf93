"""`runs start` and `runs continue`, with instructions from the command line, a file, stdin or an editor."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.cli.context import Invocation
from app.cli.exits import failed
from app.cli.options import mapping
from app.cli.runs.lookup import RunLookup
from app.cli.runs.wait import wait_options
from app.cli.writes import WriteCommand, WriteOptions, perform, write_options
from storage.records import Repository

if TYPE_CHECKING:
    from app.api.requests import Json, StartRun

LONGEST: Final = 1_000_000
"""The most bytes of instructions."""
F = TypeVar("F", bound=Callable[..., Any])


def gather(words: tuple[str, ...], file: Path | None) -> str:
    """Gather the instructions from words, a file, stdin (`-`) or, if none is named, an editor.

    Raises:
        CommandFailedError: The instructions were given twice, cannot be read, or are empty.
    """
    if words and file is not None:
        raise failed("usage", "Give the instructions as words or with --file, not both.")
    if words == ("-",) or str(file) == "-":
        text = _decoded(sys.stdin.buffer.read(LONGEST + 1), "stdin")
    elif words:
        text = " ".join(words)
    elif file is not None:
        try:
            with file.open("rb") as stream:
                text = _decoded(stream.read(LONGEST + 1), str(file))
        except OSError as error:
            raise failed("usage", f"{file} cannot be read: {error.strerror}.") from error
    else:
        has_editor = bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))
        if not (has_editor or (sys.stdin.isatty() and sys.stdout.isatty())):
            raise failed("usage", "Give the instructions as words, with --file, with - for stdin, or set EDITOR.")
        text = (click.edit("", extension=".md", require_save=True) or "").strip()
        if not text:
            raise failed("usage", "The editor returned no instructions; nothing was sent.")
    if not text.strip():
        raise failed("usage", "The instructions are empty: say what the agent should do.")
    return text


def _decoded(content: bytes, origin: str) -> str:
    if len(content) > LONGEST:
        raise failed("usage", f"{origin} holds more than {LONGEST} bytes of instructions.")
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise failed("usage", f"{origin} is not UTF-8 text.") from error


_OPTIONS: Final = (
    click.option(
        "-f", "--file", type=click.Path(path_type=Path), metavar="FILE", help="Read the instructions from a file."
    ),
    click.option("--branch", metavar="BRANCH", help="Work on this branch. Default: the service makes one."),
    click.option(
        "--metadata", multiple=True, metavar="KEY=VALUE", help="Repeatable; a VALUE that is JSON is sent as JSON."
    ),
    wait_options,
    write_options,
)


def work_options(function: F) -> F:
    """Add the options that `start` and `continue` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """The options that both commands share."""

    instructions: str
    branch: str | None
    metadata: "dict[str, Json]"
    write: WriteOptions

    @classmethod
    def of(
        cls,
        *,
        instructions: tuple[str, ...],
        file: Path | None,
        branch: str | None,
        metadata: tuple[str, ...],
        **options: Any,
    ) -> "WorkOptions":
        """From the options.

        Raises:
            CommandFailedError: The instructions or the metadata cannot be used.
        """
        return cls(gather(instructions, file), branch, mapping(metadata), WriteOptions.of(**options))


@click.command("start", cls=WriteCommand, kind="run.start")
@click.option("-R", "--repository", required=True, metavar="REPO", help="owner/repo, or gitlab:group/project.")
@work_options
@click.argument("instructions", nargs=-1)
@click.pass_obj
def start(invocation: Invocation, /, *, repository: str, **options: Any) -> int:
    """Start a run with INSTRUCTIONS: words, - for stdin, --file, or none to write them in $EDITOR."""
    from app.api.requests import StartRun

    reference, work = _repository(repository), WorkOptions.of(**options)
    request = StartRun(work.instructions, reference, work.branch, work.metadata)
    return invocation.run(lambda: _start(invocation, request, work.write))


async def _start(invocation: Invocation, request: "StartRun", options: WriteOptions) -> int:
    from storage.errors import StorageError

    async with invocation.writer(dry_run=options.dry_run) as engine:
        known: set[str] = set()
        with suppress(StorageError):  # A write needs no cache.
            known = {label.casefold() for label in await engine.cache.repositories()}
        report = await perform(invocation, engine, request, options)
        if known and request.repository.label.casefold() not in known:
            invocation.warn(
                f"No run of {request.repository.label} is known here. "
                "A service may accept a run for a repository that it does not have; that run fails when it begins."
            )
    return report()


@click.command("continue", cls=WriteCommand, kind="run.continue")
@click.argument("run_id")
@work_options
@click.argument("instructions", nargs=-1)
@click.pass_obj
def continue_run(invocation: Invocation, /, *, run_id: str, **options: Any) -> int:
    """Continue the conversation of RUN_ID; its repository is looked up."""
    work = WorkOptions.of(**options)
    return invocation.run(lambda: _continue(invocation, run_id, work))


async def _continue(invocation: Invocation, run_id: str, work: WorkOptions) -> int:
    from app.api.requests import ContinueRun

    async with invocation.writer(dry_run=work.write.dry_run) as engine:
        run = await RunLookup(engine).to_change(run_id, invocation.output.note)
        request = ContinueRun(run.run_id, work.instructions, run.repository, work.branch, work.metadata)
        report = await perform(invocation, engine, request, work.write)
    return report()


def _repository(text: str) -> Repository:
    try:
        return Repository.parse(text)
    except ValueError as error:
        raise failed("usage", str(error), field="repository") from error
