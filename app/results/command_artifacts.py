"""`runwarden runs artifacts`: the files that an agent left for its callers, listed or saved."""

from pathlib import Path
from typing import Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Column, Document
from app.results.artifacts import ArtifactError, save
from app.results.command_results import TURN_OPTION, opened, require

_COLUMNS: Final = (
    Column[Document]("turn", None, "turn"),
    Column[Document]("bytes", lambda one: f"{one['bytes']:,}", "bytes", lambda one: one["bytes"]),
    Column[Document]("name", None, "name"),
    Column[Document]("saved as", lambda one: str(one["saved_as"] or ""), "saved_as", flexible=True),
)


@click.command("artifacts", cls=FactCommand)
@RUN_ID
@click.argument("names", nargs=-1, metavar="[NAME]...")
@TURN_OPTION
@click.option(
    "-C", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Save in DIR: all, or NAMEs."
)
@async_command
async def artifacts(
    invocation: Invocation, *, run_id: str, names: tuple[str, ...], turn: int | None, folder: Path | None
) -> int:
    """List the files that a run's agent left in `.runwarden/artifacts`, or save them.

    NAMEs are saved in the current folder, unless -C names another. Of equal names, the newest turn's is saved.
    """
    async with opened(invocation, run_id) as (results, detail):
        run_turns = require(await results.turns(detail))
        turns = [each for each in reversed(run_turns.turns) if turn in {None, each.number}]
        found = [(each.number, one) for each in turns for one in each.artifacts]
        if folder is not None or names:
            newest = {one.name: (number, one) for number, one in reversed(found)}
            for name in (name for name in names if name not in newest):
                raise failed("not_found", f"There is no artifact {name!r}. See: runwarden runs artifacts {run_id}")
            found = [newest[name] for name in dict.fromkeys(names or newest)]
        documents: list[Document] = []
        for number, one in found:
            saved = None
            if folder is not None or names:
                content = require(await results.artifact(run_turns.run_id, number, one))
                try:
                    saved = str(save(folder or Path(), one.name, content))
                except ArtifactError as error:
                    raise failed("wrong_state", str(error)) from error
            documents.append({"turn": number, "name": one.name, "bytes": one.bytes, "saved_as": saved})
    invocation.output.listing("artifacts", documents, _COLUMNS, empty="No artifacts.")
    return Exit.DONE
