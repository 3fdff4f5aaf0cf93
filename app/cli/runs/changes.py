"""`runwarden runs diff`, `review`, `apply` and `checkout`: what a run changed and found, printed or taken over."""

from pathlib import Path
from typing import Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import FactCommand, async_command
from app.cli.output import Document, Format
from app.cli.output.changes import (
    FILES,
    FINDINGS,
    ORIGINS,
    facts_of,
    file_document,
    finding_document,
    quoted,
    review_document,
    show_patch,
    show_text,
    tell_origin,
    total,
    write_bytes,
)
from app.cli.runs.results import TURN_OPTION, opened, require


def resolved(_: click.Context | None, __: click.Parameter | None, folder: Path) -> Path:
    """The folder as an absolute path.

    Raises:
        click.BadParameter: It is relative to a working folder that was deleted.
    """
    try:
        return folder.resolve()
    except OSError as error:
        raise click.BadParameter("the current folder is gone; name another one") from error


FOLDER_OPTION: Final = click.option(
    "-C",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    callback=resolved,
    default=Path(),
    metavar="DIR",
    help="Another folder than the current one.",
)


@click.command("diff", cls=FactCommand)
@click.argument("run_id")
@TURN_OPTION
@click.option("--stat", is_flag=True, help="The changed files, with their counts of lines.")
@click.option("--name-only", is_flag=True, help="The changed files' names alone.")
@click.option("--color", is_flag=True, help="Colours and visible controls, also into a pipe.")
@async_command
async def diff(
    invocation: Invocation, *, run_id: str, turn: int | None, stat: bool, name_only: bool, color: bool
) -> int:
    """Print what a run changed, as a patch for `git apply`.

    Into a pipe or a file it is the patch byte for byte. On a terminal it is coloured, and controls are made visible.
    """
    if stat and name_only:
        raise click.UsageError("Give one of --stat and --name-only")
    async with opened(invocation, run_id) as (results, detail):
        change = require(await results.change(detail, turn))
    output = invocation.output
    tell_origin(output, change)
    if output.format is not Format.TABLE or stat:
        documents = [file_document(file) for file in change.files]
        output.listing("files", documents, change.files, FILES, more=facts_of(change))
        output.text(total(change))
    elif name_only:
        for file in change.files:
            output.print(quoted(file.path))
    elif output.width is None and not color:
        write_bytes(output, change.patch)
    else:
        show_patch(output, change.patch)
    return Exit.DONE


@click.command("review", cls=FactCommand)
@click.argument("run_id")
@TURN_OPTION
@async_command
async def review(invocation: Invocation, *, run_id: str, turn: int | None) -> int:
    """Print what a run found: its agent's findings, and the Markdown that it added or changed (`results.reviews`)."""
    async with opened(invocation, run_id) as (results, detail):
        reviews = require(await results.reviews(detail, turn))
    output = invocation.output
    if output.format is Format.JSON:
        output.print(output.json({"reviews": [review_document(each) for each in reviews]}, indent=2))
        return Exit.DONE
    if output.format is not Format.TABLE:
        found = [(each, finding) for each in reviews for finding in each.findings]
        documents = [{"review": each.path, **finding_document(finding)} for each, finding in found]
        output.listing("findings", documents, [finding for _, finding in found], FINDINGS)
        return Exit.DONE
    for each in reviews:
        output.note(" ".join(filter(None, (f"{each.path}, from {ORIGINS[each.source]}.", each.note))))
        if output.width is None:
            write_bytes(output, each.text.encode())
        else:
            show_text(output, each.text)
    return Exit.DONE


@click.command("apply", cls=FactCommand)
@click.argument("run_id")
@TURN_OPTION
@FOLDER_OPTION
@click.option("--force", is_flag=True, help="Even to a checkout that has no remote of the run's repository.")
@async_command
async def apply(invocation: Invocation, *, run_id: str, turn: int | None, folder: Path, force: bool) -> int:
    """Apply what a run changed to a checkout: to all of its files or to none, and never over uncommitted changes.

    The checkout is the one that the current folder is in, or DIR.
    """
    from app.results.checkout import AnotherRepositoryError, check_remotes
    from app.results.checkout import apply as apply_change
    from app.results.git import GitError

    async with opened(invocation, run_id) as (results, detail):
        change = require(await results.change(detail, turn))
    tell_origin(invocation.output, change)
    repository = detail.run.repository
    try:
        if not force and (remark := await check_remotes(folder, repository, results.repositories.address(repository))):
            invocation.output.note(remark)
        done = await apply_change(change, folder)
    except AnotherRepositoryError as error:
        raise failed("wrong_state", f"{error} Name its checkout with -C, or apply it all the same: --force") from error
    except GitError as error:
        raise failed("wrong_state", str(error)) from error
    document: Document = {
        "folder": str(done.folder),
        "files": done.files,
        "remarks": [*done.remarks],
        **facts_of(change),
    }
    invocation.output.record(document, [("applied to", str(done.folder)), ("files", str(done.files))])
    for remark in done.remarks:
        invocation.output.note(f"Look at it first: {remark}")
    return Exit.DONE


@click.command("checkout", cls=FactCommand)
@click.argument("run_id")
@FOLDER_OPTION
@async_command
async def checkout(invocation: Invocation, *, run_id: str, folder: Path) -> int:
    """Check a run's branch out in a new folder, beside the checkout that the current folder (or DIR) is in.

    It shares the objects of that checkout if both are of one repository. No hook, filter or LFS runs.
    """
    from app.results.checkout import check_out
    from app.results.git import GitError

    async with opened(invocation, run_id) as (results, detail):
        history = require(await results.history(detail))
        try:
            done = await check_out(history, detail.run.branch_name, folder)
        except GitError as error:
            raise failed("wrong_state", str(error)) from error
    output = invocation.output
    shares = None if done.shares is None else str(done.shares)
    document: Document = {"folder": str(done.folder), "commit": done.commit, "shares_objects_with": shares}
    if output.format is Format.TABLE:
        output.text(str(done.folder))
    else:
        output.record(document, [(key, str(value or "")) for key, value in document.items()])
    output.note(" ".join(filter(None, (history.note, f"It borrows objects: keep {shares}." if shares else ""))))
    return Exit.DONE
