"""`runwarden orgs` and `runwarden gitlab`: organizations and projects, onboarded once each (spec 4.1, 4.6)."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from app.cli.context import Invocation
from app.cli.documents import invitation_ends_at, organization_document, state_text, unsent_document
from app.cli.exits import ErrorDetail, Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Output
from app.cli.table import Column
from app.cli.writes import advice, carry_out, exit_of, submit
from app.run_document import as_received
from app.times import exact_ago, rfc3339
from storage.records import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.actions.imports import Import, Imported, ImportRow
    from app.engine import Engine

MOST_TOLD: Final = 20
"""Problems told at once."""
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
"""Exit codes of rows, least severe first; the command ends with the most severe."""


@click.group(cls=CommandGroup)
def orgs() -> None:
    """Create, import and list partner organizations."""


@orgs.command("create", cls=FactCommand)
@click.argument("email")
@click.option("--offer-code", metavar="CODE", help="A partner offer code. Default: the standard trial.")
@click.option("--key", metavar="KEY", help="The same request under the same key is sent only once.")
@click.pass_obj
def create(invocation: Invocation, /, *, email: str, offer_code: str | None, key: str | None) -> int:
    """Create an organization and invite EMAIL as its administrator. Each success makes another organization."""
    from app.api.requests import CreateOrganization

    invocation.beside_error = unsent_document("organization.create")
    request = CreateOrganization(email.strip(), offer_code)
    return submit(invocation, request, key=key)


@orgs.command("import", cls=FactCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@async_command
async def import_organizations(invocation: Invocation, /, *, file: Path, dry_run: bool) -> int:
    """Create an organization for each row of FILE, a CSV with the columns email and offer_code.

    It may be interrupted and started again: emails whose organization was created from here are skipped. It stops
    at the first row whose outcome is unknown, or when the service cannot be reached.
    """
    from app.actions.imports import Imported

    rows = _rows(file)
    results: list[Imported] = []
    async with invocation.engine(needs_token=not dry_run) as engine:
        work = _work(engine, dry_run=dry_run)
        try:
            for row in rows:
                results.append(await _take(work, row, dry_run=dry_run))
                invocation.output.note(f"{len(results)}/{len(rows)}  {results[-1].outcome:15}  {row.email}")
        except asyncio.CancelledError:
            # Reported below: the ledger knows what was done, and the rest can be resumed.
            results += [Imported(row, "not_tried") for row in rows[len(results) :]]
    _tell(invocation.output, results)
    return max((_exit(result) for result in results), key=SEVERITY.index)


def _rows(path: Path) -> "tuple[ImportRow, ...]":
    """The rows of a CSV file with a header that has `email` and, optionally, `offer_code`.

    Raises:
        CommandFailedError: The file cannot be read, a row cannot be used, or an email is there twice.
    """
    from app.actions.imports import ImportFileError, read_rows

    try:
        rows = read_rows(path)
    except ImportFileError as error:
        raise failed("usage", str(error)) from error
    found: list[dict[str, ErrorDetail]] = [
        {"line": row.line, "field": problem.field, "message": problem.message}
        for row in rows
        for problem in row.problems
    ]
    if found:
        told = " ".join(f"Line {each['line']}: {each['message']}" for each in found[:MOST_TOLD])
        raise failed("invalid", f"{path}: nothing was sent. {told}", problems=list(found))
    return rows


def _work(engine: "Engine", *, dry_run: bool) -> "Import":
    from app.actions.imports import Import

    return Import(engine.ledger, lambda request, key: carry_out(engine, request, key=key), most=0 if dry_run else None)


async def _take(work: "Import", row: "ImportRow", *, dry_run: bool) -> "Imported":
    result = await work.take(row)
    return replace(result, outcome="to_create") if dry_run and result.outcome == "not_tried" else result


def _exit(result: "Imported") -> Exit:
    """The exit code of the row alone."""
    if result.outcome == "blocked":
        return Exit.UNKNOWN_OUTCOME
    if result.outcome in PASSED_OVER or result.action is None:
        return Exit.DONE
    return exit_of(result.action)


def _document(result: "Imported") -> dict[str, object]:
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


@orgs.command("list", cls=FactCommand)
@async_command
async def list_organizations(invocation: Invocation, /) -> int:
    """List the organizations requested from here, newest first; does not contact the service."""
    async with invocation.engine(needs_token=False) as engine:
        found = await engine.ledger.organizations()
        now = engine.clock()
    entries = [organization_document(action) for action in found]
    columns: tuple[Column[Action], ...] = (
        Column("state", state_text, "state", lambda a: a.state),
        Column("email", _email, "email", flexible=True),
        Column("organization", _name, "organization", flexible=True),
        Column("id", lambda a: a.result_id or "", "organization_id"),
        Column("asked", lambda a: exact_ago(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column(
            "invitation",
            lambda a: _invitation(a, now),
            "invitation_expires_at",
            lambda a: rfc3339(invitation_ends_at(a)),
        ),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    invocation.output.listing("organizations", entries, found, columns, empty="No organization was requested yet.")
    return Exit.DONE


def _email(action: Action) -> str:
    return str(json.loads(action.body_json).get("email", ""))


def _name(action: Action) -> str:
    return str(as_received(action.response_json).get("organization_name") or "")


def _invitation(action: Action, now: datetime) -> str:
    ends_at = invitation_ends_at(action)
    if ends_at is None:
        return ""
    return f"expires {exact_ago(ends_at, now)}" if ends_at > now else f"expired {exact_ago(ends_at, now)}"


@click.group(cls=CommandGroup)
def gitlab() -> None:
    """Onboard GitLab projects."""


@gitlab.command("onboard", cls=FactCommand)
@click.argument("project")
@click.option("--key", metavar="KEY", help="The same request under the same key is sent only once.")
@click.pass_obj
def onboard(invocation: Invocation, /, *, project: str, key: str | None) -> int:
    """Onboard PROJECT: group/project, or its numeric id. Exit code 1 if GitLab refuses it."""
    from app.api.requests import OnboardProject

    invocation.beside_error = unsent_document("gitlab.onboard")
    name = project.removeprefix("gitlab:")
    is_id = name.isascii() and name.isdecimal()
    request = OnboardProject(project_id=int(name)) if is_id else OnboardProject(project_path=name)
    return submit(invocation, request, key=key)
