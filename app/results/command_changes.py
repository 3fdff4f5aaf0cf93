"""`runwarden runs diff`, `review`, `apply`, `checkout` and `artifacts`: a run's results, printed, applied or saved."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Column, Document, Output, facts
from app.engine.text import plural, safe_text
from app.engine.times import rfc3339
from app.results.checkout import AnotherRepositoryError, check_out, check_remotes, save
from app.results.checkout import apply as apply_change
from app.results.command_results import TURN_OPTION, open_results, require
from app.results.diff import Patch
from app.results.git import GitError
from storage.records.results import Change, ChangedFile

_TONES: Final = {"+": "32", "-": "31", "@": "36", "d": "1", "\\": "2"}
"""SGR codes by the kind of a patch's line."""
_TAB: Final = 8
_MAX_LINE_LENGTH: Final = 4_000
"""Characters."""
_BAR: Final = 40
"""Cells of a file's bar of added and removed lines."""
ORIGINS: Final = {"git": "git", "service": "the service's results"}


def print_origin(output: Output, change: Change) -> None:
    if not change.patch:
        output.note(f"Nothing was changed, says {ORIGINS[change.source]}.")
        return
    ends = f" ({(change.base or 'nothing')[:12]}..{change.head[:12]})" if change.head else ""
    output.note(f"From {ORIGINS[change.source]}, since {change.base_name}{ends}. {change.note or ''}".rstrip())


def facts_of(change: Change) -> dict[str, object]:
    """A change without its files, as JSON."""
    return facts(change, "source base head base_name note") | {"pushed": change.is_pushed}


def _text(name: str) -> str:
    """A file's name as Unicode: JSON has no bytes."""
    return name.encode("utf-8", "surrogateescape").decode(errors="replace")


def quote_name(name: str) -> str:
    """A name on one line, in quotes as git writes it where a terminal or a script would stumble over it."""
    if name.isprintable() and not set(name) & {'"', "\\"}:
        return name
    plain = set(range(32, 127)) - set(b'"\\')
    raw = name.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(c) if c in plain else f"\\{c:03o}" for c in raw) + '"'


def _bar(file: ChangedFile) -> str:
    if file.is_binary:
        return "binary"
    added = file.additions or 0
    removed = file.deletions or 0
    scale = min(1.0, _BAR / max(1, added + removed))
    return "+" * round(added * scale) + "-" * round(removed * scale)


def _patch_lines(data: bytes, *, colour: bool) -> Iterator[str]:
    patch = Patch(data)
    patch.read()
    is_binary = False
    for number, kind in enumerate(patch.kinds):
        if patch.line(number) == b"GIT binary patch":
            is_binary = True
            yield "(binary content, not shown)"
        is_binary = is_binary and not patch.line(number).startswith(b"diff --git ")
        if is_binary:
            continue
        text = patch.line(number).decode(errors="replace").expandtabs(_TAB)
        tone = _TONES.get(chr(kind)) if colour else None
        safe = safe_text(text, limit=_MAX_LINE_LENGTH)
        yield f"\x1b[{tone}m{safe}\x1b[0m" if tone else safe


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


FINDING_FACTS: Final = "path line severity text"
FINDINGS: Final = tuple(Column[Document](name, name=name) for name in ("severity", "path", "line", "text"))
FILES: Final[Sequence[Column[ChangedFile]]] = (
    Column("change", lambda file: file.kind, "kind"),
    Column("+", lambda file: _number(file.additions), "additions", lambda file: file.additions),
    Column("-", lambda file: _number(file.deletions), "deletions", lambda file: file.deletions),
    Column("", _bar, tone=lambda _: "dim"),
    Column(
        "file",
        lambda file: " -> ".join(quote_name(path) for path in (file.old_path, file.path) if path is not None),
        "path",
        lambda file: file.path,
        flexible=True,
    ),
)
ARTIFACTS: Final = (
    Column[Document]("turn", None, "turn"),
    Column[Document]("bytes", lambda row: f"{row['bytes']:,}", "bytes", lambda row: row["bytes"]),
    Column[Document]("name", None, "name"),
    Column[Document]("saved as", None, "saved_as", flexible=True),
)


def resolved(_: click.Context | None, __: click.Parameter | None, folder: Path) -> Path:
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
    help="The checkout. Default: the current folder.",
)


@click.command("diff", cls=FactCommand)
@RUN_ID
@TURN_OPTION
@click.option("--stat", is_flag=True, help="The changed files, with their counts of lines.")
@click.option("--name-only", is_flag=True, help="Only the changed files' names.")
@click.option("--patch", is_flag=True, help="With --json: include the patch.")
@click.option("--color", is_flag=True, help="Use colours and visible control characters, even into a pipe.")
@async_command
async def diff(
    invocation: Invocation, *, run_id: str, turn: int | None, stat: bool, name_only: bool, patch: bool, color: bool
) -> int:
    """Print a run's change, as a patch for `git apply`.

    Into a pipe or a file it is the patch byte for byte. On a terminal it is coloured, and controls are made visible.
    """
    if stat and name_only:
        raise click.UsageError("Give one of --stat and --name-only")
    async with open_results(invocation, run_id) as (_, results, detail):
        change = require(await results.change(detail, turn))
    output = invocation.output
    print_origin(output, change)
    if output.format is not Format.TABLE or stat:
        documents: list[dict[str, object]] = [
            {
                "path": _text(file.path),
                "old_path": file.old_path and _text(file.old_path),
                "kind": file.kind,
                "additions": file.additions,
                "deletions": file.deletions,
                "binary": file.is_binary,
            }
            for file in change.files
        ]
        more = facts_of(change) | {"as_of": rfc3339(detail.last_seen_at)}
        more |= {"patch": change.patch.decode(errors="replace")} if patch else {}
        output.listing("files", documents, FILES, change.files, more=more)
        added, removed = change.lines
        output.text(f"{plural(len(change.files), 'file')}, {plural(added, 'line')} added, {removed} removed")
    elif name_only:
        for file in change.files:
            output.print(quote_name(file.path))
    elif output.width is None and not color:
        output.write(change.patch)
    else:
        for line in _patch_lines(change.patch, colour=output.colour or output.width is None):
            output.print(line)
    return Exit.DONE


@click.command("review", cls=FactCommand)
@RUN_ID
@TURN_OPTION
@async_command
async def review(invocation: Invocation, *, run_id: str, turn: int | None) -> int:
    """Print a run's review: its agent's findings, and the Markdown that it added or changed (`results.reviews`)."""
    async with open_results(invocation, run_id) as (_, results, detail):
        reviews = require(await results.reviews(detail, turn))
    output = invocation.output
    if output.format is Format.JSON:
        documents = [
            {"path": _text(review.path), "text": review.text, "source": review.source, "note": review.note}
            | {"findings": [facts(finding, FINDING_FACTS) for finding in review.findings]}
            for review in reviews
        ]
        output.record({"reviews": documents, "as_of": rfc3339(detail.last_seen_at)}, ())
    elif output.format is not Format.TABLE:
        entries = [
            {"review": _text(review.path), **facts(finding, FINDING_FACTS)}
            for review in reviews
            for finding in review.findings
        ]
        output.listing("findings", entries, FINDINGS)
    else:
        for review in reviews:
            output.note(f"{review.path}, from {ORIGINS[review.source]}. {review.note or ''}".rstrip())
            if output.width is None:
                output.write(review.text.encode())
                continue
            for line in review.text.split("\n"):
                output.print(safe_text(line.rstrip("\r").expandtabs(_TAB), limit=_MAX_LINE_LENGTH))
    return Exit.DONE


@click.command("apply", cls=FactCommand)
@RUN_ID
@TURN_OPTION
@FOLDER_OPTION
@click.option("--force", is_flag=True, help="Apply even if the checkout has no remote of the run's repository.")
@async_command
async def apply(invocation: Invocation, *, run_id: str, turn: int | None, folder: Path, force: bool) -> int:
    """Apply a run's change to a checkout: to all of its files or to none, and never over uncommitted changes.

    The checkout is the one that the current folder is in, or DIR.
    """
    async with open_results(invocation, run_id) as (_, results, detail):
        change = require(await results.change(detail, turn))
    print_origin(invocation.output, change)
    repository = detail.run.repository
    try:
        if not force and (remark := await check_remotes(folder, repository, results.repositories.address(repository))):
            invocation.output.note(remark)
        done = await apply_change(change, folder)
    except AnotherRepositoryError as error:
        raise command_error("wrong_state", f"{error} Name its checkout with -C, or apply it anyway: --force") from error
    except GitError as error:
        raise command_error("wrong_state", str(error)) from error
    document = {"folder": str(done.folder), "files": done.files, "remarks": [*done.remarks], **facts_of(change)}
    invocation.output.record(document, [("applied to", str(done.folder)), ("files", str(done.files))])
    for remark in done.remarks:
        invocation.output.note(f"Check it first: {remark}")
    return Exit.DONE


@click.command("checkout", cls=FactCommand)
@RUN_ID
@FOLDER_OPTION
@async_command
async def checkout(invocation: Invocation, *, run_id: str, folder: Path) -> int:
    """Check a run's branch out in a new folder, next to the checkout that the current folder (or DIR) is in.

    It shares the objects of that checkout if both are of one repository. No hook, filter or LFS runs.
    """
    async with open_results(invocation, run_id) as (_, results, detail):
        history = require(await results.history(detail))
        try:
            done = await check_out(history, detail.run.branch_name, folder)
        except GitError as error:
            raise command_error("wrong_state", str(error)) from error
    output = invocation.output
    shares = None if done.shares is None else str(done.shares)
    document: Document = {"folder": str(done.folder), "commit": done.commit, "shares_objects_with": shares}
    if output.format is Format.TABLE:
        output.text(str(done.folder))
    else:
        output.record(document, [(key, str(value or "")) for key, value in document.items()])
    output.note(" ".join(filter(None, (history.note, f"It uses objects of {shares}: keep that." if shares else ""))))
    return Exit.DONE


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
    async with open_results(invocation, run_id) as (_, results, detail):
        turns = [entry for entry in require(await results.turns(detail)).turns if turn in {None, entry.number}]
        pairs = [(entry.number, artifact) for entry in reversed(turns) for artifact in entry.artifacts]
        if is_saving := folder is not None or bool(names):
            newest = {artifact.name: (number, artifact) for number, artifact in reversed(pairs)}
            if unknown := set(names) - set(newest):
                raise command_error(
                    "not_found", f"No artifact is {min(unknown)!r}. See: runwarden runs artifacts {run_id}"
                )
            pairs = [newest[name] for name in dict.fromkeys(names or newest)]
        documents: list[Document] = []
        for number, artifact in pairs:
            saved = None
            if is_saving:
                content = require(await results.artifact(detail.run.run_id, number, artifact))
                try:
                    saved = str(save(folder or Path(), artifact.name, content))
                except GitError as error:
                    raise command_error("wrong_state", str(error)) from error
            documents.append({"turn": number, "name": artifact.name, "bytes": artifact.bytes, "saved_as": saved})
    invocation.output.listing("artifacts", documents, ARTIFACTS, empty="No artifacts.")
    return Exit.DONE
