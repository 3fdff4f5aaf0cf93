"""`orgs import`: many organizations, each created once, however often the import is started."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from app.cli.context import Invocation
from app.cli.documents import organization_document
from app.cli.exits import Exit
from app.cli.options import FactCommand
from app.cli.orgs.rows import read
from app.cli.output import Output
from app.cli.table import Column
from app.cli.writes import advice, carry_out, exit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.actions.imports import Import, Imported, ImportRow
    from app.engine import Engine

PASSED_OVER: Final = frozenset({"already_created", "to_create", "not_tried"})
SEVERITY: Final = (
    Exit.DONE,
    Exit.NOT_FOUND,
    Exit.USAGE,
    Exit.INTERRUPTED,
    Exit.UNREACHABLE,
    Exit.RATE_LIMITED,
    Exit.NOT_AUTHORIZED,
    Exit.UNKNOWN_OUTCOME,
)
"""Exit codes of rows, the one that the command ends with last."""


@click.command("import", cls=FactCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def import_organizations(invocation: Invocation, /, *, file: Path, dry_run: bool) -> int:
    """Create an organization for each row of FILE, a CSV with the columns email and offer_code.

    It may be interrupted and started again: emails whose organization was created from here are passed over. It stops
    at the first row that the service could not be asked about, or whose outcome is unknown.
    """
    rows = read(file)
    return invocation.run(lambda: _import(invocation, rows, dry_run=dry_run))


async def _import(invocation: Invocation, rows: "Sequence[ImportRow]", *, dry_run: bool) -> int:
    from app.actions.imports import Imported

    results: list[Imported] = []
    async with invocation.engine(needs_token=not dry_run) as engine:
        work = _work(engine, dry_run=dry_run)
        try:
            for row in rows:
                results.append(await _take(work, row, dry_run=dry_run))
                invocation.output.note(f"{len(results)}/{len(rows)}  {results[-1].outcome:15}  {row.email}")
        except asyncio.CancelledError:
            # Told below like any other end: what was done is in the ledger, and the rest can be taken up again.
            results += [Imported(row, "not_tried") for row in rows[len(results) :]]
    _tell(invocation.output, results)
    return max((_exit(result) for result in results), key=SEVERITY.index)


def _work(engine: "Engine", *, dry_run: bool) -> "Import":
    from app.actions.imports import Import

    return Import(engine.ledger, lambda request, key: carry_out(engine, request, key=key), most=0 if dry_run else None)


async def _take(work: "Import", row: "ImportRow", *, dry_run: bool) -> "Imported":
    result = await work.take(row)
    return replace(result, outcome="to_create") if dry_run and result.outcome == "not_tried" else result


def _exit(result: "Imported") -> Exit:
    """What the row alone would end the command with."""
    if result.outcome == "blocked":
        return Exit.UNKNOWN_OUTCOME
    if result.outcome in PASSED_OVER or result.action is None:
        return Exit.DONE
    return exit_of(result.action)


def _document(result: "Imported") -> dict[str, object]:
    """A row and what came of it, as JSON."""
    attempt = organization_document(result.action) if result.action else None
    return {
        "line": result.row.line,
        "email": result.row.email,
        "offer_code": result.row.offer_code,
        "outcome": result.outcome,
        "action_id": result.action.action_id if result.action else None,
        "organization": attempt["organization"] if attempt else None,
        "error": attempt["error"] if attempt else None,
    }


def _tell(output: Output, results: "Sequence[Imported]") -> None:
    counts = Counter(result.outcome for result in results)
    more: dict[str, object] = {"outcomes": dict(counts)}
    output.listing("rows", [_document(result) for result in results], results, COLUMNS, more=more)
    for result in results:
        if result.outcome in {"blocked", "unknown"} and result.action is not None and not output.format.is_json:
            output.note(f"{result.row.email}: {advice(result.action)}")


COLUMNS: "Final[tuple[Column[Imported], ...]]" = (
    Column("line", lambda r: str(r.row.line), "line"),
    Column("outcome", lambda r: r.outcome, "outcome"),
    Column("email", lambda r: r.row.email, "email", flexible=True),
    Column("offer code", lambda r: r.row.offer_code or "", "offer_code", flexible=True),
    Column("organization", lambda r: (r.action.result_id if r.action else None) or "", "organization_id"),
    Column("error", lambda r: r.action.error.message if r.action and r.action.error else "", "error", flexible=True),
    Column("action", lambda r: r.action.action_id if r.action else "", "action_id"),
)
