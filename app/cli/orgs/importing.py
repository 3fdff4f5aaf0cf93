"""`orgs import`: many organizations, each created once, however often the import is started."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from app.cli.context import Invocation
from app.cli.documents import organization_document
from app.cli.exits import Exit
from app.cli.options import FactCommand
from app.cli.orgs.rows import Row, read
from app.cli.output import Output
from app.cli.table import Column
from app.cli.writes import advice, carry_out, exit_of
from storage.records import Action

if TYPE_CHECKING:
    from app.engine import Engine

Outcome = Literal["created", "already_created", "rejected", "unknown", "blocked", "not_sent", "not_tried", "to_create"]
STOPPING: Final = frozenset({Exit.NOT_AUTHORIZED, Exit.RATE_LIMITED, Exit.UNREACHABLE, Exit.UNKNOWN_OUTCOME})
"""After these the next row would most likely fare the same; an unknown outcome must not become fifty."""
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


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of one row."""

    row: Row
    outcome: Outcome
    action: Action | None = None
    """None: nothing was ever asked for this email."""

    @property
    def exit(self) -> Exit:
        """What the row alone would end the command with."""
        if self.outcome == "blocked":
            return Exit.UNKNOWN_OUTCOME
        if self.outcome in PASSED_OVER or self.action is None:
            return Exit.DONE
        return exit_of(self.action)

    def document(self) -> dict[str, object]:
        """As JSON."""
        attempt = organization_document(self.action) if self.action else None
        return {
            "line": self.row.line,
            "email": self.row.email,
            "offer_code": self.row.offer_code,
            "outcome": self.outcome,
            "action_id": self.action.action_id if self.action else None,
            "organization": attempt["organization"] if attempt else None,
            "error": attempt["error"] if attempt else None,
        }


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


async def _import(invocation: Invocation, rows: Sequence[Row], *, dry_run: bool) -> int:
    results: list[Imported] = []
    async with invocation.engine(needs_token=not dry_run) as engine:
        run = Import(engine, results.append, dry_run=dry_run)
        try:
            for row in rows:
                await run.take(row)
                invocation.output.note(f"{len(results)}/{len(rows)}  {results[-1].outcome:15}  {row.email}")
        except asyncio.CancelledError:
            # Told below like any other end: what was done is in the ledger, and the rest can be taken up again.
            results += [Imported(row, "not_tried") for row in rows[len(results) :]]
    _tell(invocation.output, results)
    return max((result.exit for result in results), key=SEVERITY.index)


@dataclass(slots=True)
class Import:
    """Takes one row after the other, until going on would do harm."""

    engine: "Engine"
    keep: Callable[[Imported], None]
    dry_run: bool
    stopped: bool = False

    async def take(self, row: Row) -> None:
        """Creates the row's organization, unless that was done before, or must not be done now."""
        attempts = [action for action in await self.engine.ledger.organizations() if action.subject == row.subject]
        settled = _settled_before(row, attempts)
        if settled is not None:
            self.keep(settled)
        elif self.dry_run:
            self.keep(Imported(row, "to_create", attempts[0] if attempts else None))
        elif self.stopped:
            self.keep(Imported(row, "not_tried"))
        else:
            result = await self._create(row, len(attempts))
            self.stopped = result.exit in STOPPING
            self.keep(result)

    async def _create(self, row: Row, attempts: int) -> Imported:
        from app.actions import Blocked
        from app.api.requests import CreateOrganization

        # Two imports at the same moment count the same attempts, so they get the same key, and one of them sends.
        key = f"orgs-import:{row.subject}:{attempts}"
        try:
            action = await carry_out(self.engine, CreateOrganization(row.email, row.offer_code), key=key)
        except Blocked as blocked:
            return Imported(row, "blocked", blocked.existing)
        return Imported(row, _outcome(action), action)


def _settled_before(row: Row, attempts: Sequence[Action]) -> Imported | None:
    for action in attempts:
        if action.state == "confirmed":
            return Imported(row, "already_created", action)
        if action.is_open:
            return Imported(row, "blocked", action)
    return None


def _outcome(action: Action) -> Outcome:
    match action.state:
        case "confirmed":
            return "created"
        case "rejected":
            return "rejected"
        case "not_sent" | "not_created":
            return "not_sent"
        case "prepared" | "sending" | "unknown":
            return "unknown"


def _tell(output: Output, results: Sequence[Imported]) -> None:
    counts = Counter(result.outcome for result in results)
    more: dict[str, object] = {"outcomes": dict(counts)}
    output.listing("rows", [result.document() for result in results], results, COLUMNS, more=more)
    for result in results:
        if result.outcome in {"blocked", "unknown"} and result.action is not None and not output.format.is_json:
            output.note(f"{result.row.email}: {advice(result.action)}")


COLUMNS: Final[tuple[Column[Imported], ...]] = (
    Column("line", lambda r: str(r.row.line), "line"),
    Column("outcome", lambda r: r.outcome, "outcome"),
    Column("email", lambda r: r.row.email, "email", flexible=True),
    Column("offer code", lambda r: r.row.offer_code or "", "offer_code", flexible=True),
    Column("organization", lambda r: (r.action.result_id if r.action else None) or "", "organization_id"),
    Column("error", lambda r: r.action.error.message if r.action and r.action.error else "", "error", flexible=True),
    Column("action", lambda r: r.action.action_id if r.action else "", "action_id"),
)
