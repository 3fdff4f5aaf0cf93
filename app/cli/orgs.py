"""`runwarden orgs` and `runwarden gitlab`: organizations and projects, onboarded once each (spec 4.1, 4.6)."""

import asyncio
import json
import sys
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.context import Invocation
from app.cli.documents import invitation_ends_at, organization_document, state_text
from app.cli.exits import ErrorDetail, Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Column, Output
from app.cli.progress import RowProgress
from app.cli.writes import (
    DRY_RUN_OPTION,
    WriteCommand,
    WriteOptions,
    advice,
    carry_out,
    exit_of,
    request_document,
    submit,
    tell_batch,
    worst,
    write_options,
)
from app.run_document import as_received
from app.times import exact_ago, rfc3339
from storage.records import Action
from storage.values import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.actions.imports import Import, Imported, ImportRow
    from app.engine import Engine

MOST_PROBLEMS: Final = 20
"""Problems of a file that one message lists."""
NOTHING_SENT: Final = frozenset({"already_created", "to_create", "not_tried"})
"""Outcomes of a row for which nothing was sent."""


@click.command("import", cls=FactCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@DRY_RUN_OPTION
@click.pass_obj
def import_organizations(invocation: Invocation, /, *, file: Path, dry_run: bool) -> int:
    """Create an organization for each row of FILE, a CSV with the columns email and offer_code; - is stdin.

    It may be interrupted and started again: emails whose organization was created from here are skipped. It stops
    at the first row whose outcome is unknown, or when the service cannot be reached.
    """
    # Read outside the event loop, where Ctrl-C still ends it.
    rows = _rows(file)
    return invocation.run(lambda: _import(invocation, rows, dry_run=dry_run))


async def _import(invocation: Invocation, rows: "Sequence[ImportRow]", *, dry_run: bool) -> int:
    from app.actions.imports import Imported
    from storage.errors import StorageError

    results: list[Imported] = []
    async with invocation.writer(dry_run=dry_run) as engine:
        work, base_url = _work(engine, dry_run=dry_run), engine.client.base_url
        try:
            with closing(RowProgress(invocation.output, len(rows), usual="created")) as progress:
                for row in rows:
                    invocation.go_on()
                    results.append(await _take(work, row, dry_run=dry_run))
                    progress.done(results[-1].outcome, row.email)
        except StorageError:
            invocation.beside_error = {"rows": [_row_document(result) for result in results], "base_url": base_url}
            raise
        except asyncio.CancelledError:
            # Reported below: the ledger has the done part, and the rest can be resumed.
            results += [Imported(row, "not_tried") for row in rows[len(results) :]]
    code = worst(_exit(result) for result in results)
    invocation.outcome = None if dry_run else code
    _print_import(invocation, results, base_url, dry_run=dry_run)
    return code


def _rows(path: Path) -> "tuple[ImportRow, ...]":
    """The rows of a CSV file with a header that has `email` and, optionally, `offer_code`.

    Raises:
        CommandFailedError: The file cannot be read, a row cannot be used, or an email is there twice.
    """
    from app.actions.imports import LARGEST, ImportFileError, parse_rows, read_rows

    is_stdin, origin = str(path) == "-", "stdin" if str(path) == "-" else str(path)
    try:
        rows = parse_rows(sys.stdin.buffer.read(LARGEST + 1), origin) if is_stdin else read_rows(path)
    except ImportFileError as error:
        raise failed("usage", str(error)) from error
    found: list[dict[str, ErrorDetail]] = [
        {"line": row.line, "field": problem.field, "message": problem.message}
        for row in rows
        for problem in row.problems
    ]
    if found:
        listed = " ".join(f"Line {each['line']}: {each['message']}" for each in found[:MOST_PROBLEMS])
        raise failed("invalid", f"{origin}: nothing was sent. {listed}", problems=list(found))
    return rows


def _work(engine: "Engine", *, dry_run: bool) -> "Import":
    from app.actions.imports import Import

    return Import(engine.ledger, lambda request, key: carry_out(engine, request, key=key), most=0 if dry_run else None)


async def _take(work: "Import", row: "ImportRow", *, dry_run: bool) -> "Imported":
    result = await work.take(row)
    return replace(result, outcome="to_create") if dry_run and result.outcome == "not_tried" else result


def _exit(result: "Imported") -> Exit:
    """Return the exit code that this row would have without the others."""
    if result.outcome == "blocked":
        return Exit.UNKNOWN_OUTCOME
    if result.outcome in NOTHING_SENT or result.action is None:
        return Exit.DONE
    return exit_of(result.action)


def _row_document(result: "Imported") -> dict[str, object]:
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


def _print_import(invocation: Invocation, results: "Sequence[Imported]", base_url: str, *, dry_run: bool) -> None:
    entries, columns = [_row_document(result) for result in results], COLUMNS
    if dry_run:
        sent = [
            request_document(base_url, result.row.request) if result.outcome == "to_create" else None
            for result in results
        ]
        entries = [{**entry, "request": request} for entry, request in zip(entries, sent, strict=True)]
        columns = (
            *COLUMNS,
            Column("request", partial(_request, invocation.output, base_url), "request", flexible=True),
        )
    tell_batch(invocation, entries, results, columns, base_url)
    for result in results:
        if result.outcome in {"blocked", "unknown"} and result.action is not None and not invocation.format.is_json:
            invocation.output.note(f"{result.row.email}: {advice(result.action, invocation.command_line)}")


def _request(output: Output, base_url: str, result: "Imported") -> str:
    if result.outcome != "to_create":
        return ""
    request = request_document(base_url, result.row.request)
    return f"{request['method']} {request['url']} {output.json(request['body'])}"


COLUMNS: "Final[tuple[Column[Imported], ...]]" = (
    Column("line", lambda r: str(r.row.line), "line"),
    Column("outcome", lambda r: r.outcome, "outcome"),
    Column("email", lambda r: r.row.email, "email", flexible=True),
    Column("offer code", lambda r: r.row.offer_code or "", "offer_code", flexible=True),
    Column("organization", lambda r: (r.action.result_id if r.action else None) or "", "organization_id"),
    Column("error", lambda r: r.action.error.message if r.action and r.action.error else "", "error", flexible=True),
    Column("action", lambda r: r.action.action_id if r.action else "", "action_id"),
)


LONGEST_ID: Final = 100
"""Digits; Python refuses to read very long numbers."""


@click.group(cls=CommandGroup)
def orgs() -> None:
    """Create, import and list partner organizations."""


orgs.add_command(import_organizations)


@orgs.command("create", cls=WriteCommand, kind="organization.create")
@click.argument("email")
@click.option("--offer-code", metavar="CODE", help="A partner offer code. Default: the standard trial.")
@write_options
@click.option("--again", is_flag=True, help="Create another one, although one was created for EMAIL before.")
@click.pass_obj
def create(invocation: Invocation, /, *, email: str, offer_code: str | None, **options: Any) -> int:
    """Create an organization and invite EMAIL as its administrator."""
    from app.api.requests import CreateOrganization

    return submit(invocation, CreateOrganization(email.strip(), offer_code), WriteOptions.of(**options))


@orgs.command("list", cls=FactCommand)
@async_command
async def list_organizations(invocation: Invocation, /) -> int:
    """List the organizations requested from here, newest first; does not contact the service."""
    async with invocation.ledger() as ledger:
        found = await ledger.organizations()
    now = utc_now()
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


@gitlab.command("onboard", cls=WriteCommand, kind="gitlab.onboard")
@click.argument("project")
@write_options
@click.pass_obj
def onboard(invocation: Invocation, /, *, project: str, **options: Any) -> int:
    """Onboard PROJECT: group/project, or its numeric id. Exit code 1 if GitLab refuses it."""
    from app.api.requests import OnboardProject

    name = project.removeprefix("gitlab:")
    is_id = name.isascii() and name.isdecimal() and len(name) <= LONGEST_ID
    request = OnboardProject(project_id=int(name)) if is_id else OnboardProject(project_path=name)
    return submit(invocation, request, WriteOptions.of(**options))
