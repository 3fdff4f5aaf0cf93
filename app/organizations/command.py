"""`runwarden orgs` and `runwarden gitlab`: organizations and projects, onboarded once each (spec 4.1, 4.6)."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from app.actions.command_writes import (
    DRY_RUN_OPTION,
    WriteCommand,
    WriteOptions,
    error_document,
    perform,
    print_batch,
    request_document,
    send,
    send_batch,
    state_text,
    write_options,
)
from app.api.errors import ApiError, NotOfferedError
from app.api.requests import CreateOrganization, OnboardProject, ResendInvitation
from app.cli.context import Invocation
from app.cli.exits import ErrorDetail, Exit, command_error, of_api_error
from app.cli.options import CommandGroup, async_command
from app.cli.output import Column, facts
from app.cli.running import run
from app.engine.times import exact_ago, rfc3339
from app.organizations.facts import invited_until, newest_invitation, short_state
from app.organizations.imports import MAX_FILE_BYTES, ImportFileError, ImportRow, parse_rows, plan_rows, read_rows
from app.runs.document import as_received
from storage import RunwardenError
from storage.records import Action
from storage.records.organization import Invitation
from storage.values import utc_now

MAX_PROBLEMS: Final = 20
"""Problems of a file that one message lists."""
MAX_ID: Final = 100
"""Digits; Python refuses to read very long numbers."""
COLUMNS: Final[tuple[Column[ImportRow], ...]] = (
    Column("line", lambda r: str(r.line), "line"),
    Column("outcome", lambda r: r.outcome, "outcome"),
    Column("email", lambda r: r.name, "email", flexible=True),
    Column("offer code", lambda r: r.request.offer_code or "", "offer_code", flexible=True),
    Column("organization", lambda r: r.result.result_id, "organization_id"),
    Column("error", lambda r: r.result.message, "error", flexible=True),
    Column("action", lambda r: r.result.action.action_id if r.result.action else "", "action_id"),
)


orgs = CommandGroup("orgs", help="Create, import and list partner organizations.")


@orgs.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@DRY_RUN_OPTION
@click.option(
    "--past", default="", metavar="CODE", help="Continue after unknown outcomes with this error_code of the service."
)
@click.pass_obj
def import_organizations(invocation: Invocation, /, *, file: Path, dry_run: bool, past: str) -> int:
    """Create an organization for each row of FILE, a CSV with the columns email and offer_code; - is stdin.

    It may be interrupted and started again: emails whose organization was created from here are skipped. It stops
    at the first row whose outcome is unknown, or when the service cannot be reached. While the service's mail is down,
    --past provisioning_failed sends all rows.
    """
    # Read outside the event loop, so that Ctrl-C still stops it.
    is_stdin = str(file) == "-"
    origin = "stdin" if is_stdin else str(file)
    try:
        rows = parse_rows(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), origin) if is_stdin else read_rows(file)
    except ImportFileError as error:
        raise command_error("usage", str(error)) from error
    if faults := [(row.line, problem) for row in rows for problem in row.problems]:
        lines = " ".join(f"Line {line}: {problem.message}" for line, problem in faults[:MAX_PROBLEMS])
        details: list[ErrorDetail] = [
            {"line": n, "field": reason.field, "message": reason.message} for n, reason in faults
        ]
        raise command_error("invalid", f"{origin}: nothing was sent. {lines}", problems=details)

    def document(row: ImportRow, base_url: str) -> dict[str, object]:
        attempt = organization_document(row.result.action) if row.result.action else {}
        request = None
        if row.outcome == "to_create":
            request = request_document(base_url, row.request)
        return {
            "line": row.line,
            "email": row.name,
            "offer_code": row.request.offer_code,
            "outcome": row.outcome,
            **{name: attempt.get(name) for name in ("action_id", "organization", "error")},
            **({"request": request} if dry_run else {}),
        }

    async def work() -> int:
        async with invocation.writer(dry_run=dry_run) as engine:
            base_url = engine.client.base_url
            result = plan_rows(rows, await engine.ledger.organizations())
            if not dry_run:
                result = await send_batch(invocation, engine, result, document, "created", past=past)

        def request(row: ImportRow) -> str:
            text = f"POST {base_url}{row.request.path} {invocation.output.json(row.request.body())}"
            return text if row.outcome == "to_create" else ""

        columns = (*COLUMNS, Column("request", request, "request", flexible=True)) if dry_run else COLUMNS
        return print_batch(invocation, result, columns, document, base_url, dry_run=dry_run)

    return run(invocation, work)


@orgs.command("create", cls=WriteCommand, kind="organization.create")
@click.argument("email")
@click.option("--offer-code", metavar="CODE", help="A partner offer code. Default: the standard trial.")
@write_options
@click.option("--again", is_flag=True, help="Create another one even if EMAIL has one already.")
@async_command
async def create(invocation: Invocation, /, *, email: str, offer_code: str | None, **options: Any) -> int:
    """Create an organization and invite EMAIL as its administrator."""
    return await send(invocation, CreateOrganization(email.strip(), offer_code), WriteOptions(**options))


@orgs.command("resend", cls=WriteCommand, kind="invitation.resend")
@click.argument("which", metavar="EMAIL|ORGANIZATION_ID|INVITATION_ID")
@write_options
@async_command
async def resend(invocation: Invocation, /, *, which: str, **write: Any) -> int:
    """Invite an organization's administrator again, for 30 days; the code mailed before no longer works.

    A service need not offer this: the specification has no invitations.
    """
    options = WriteOptions(**write)
    async with invocation.writer(dry_run=options.dry_run) as engine:
        try:
            reported = await engine.client.invitations()
        except ApiError as error:
            raise of_api_error(error, hint="Its operator can send the mail again.") from error
        name = which.strip().casefold()
        matching = [row for row in reported if name in {row.invitation_id.casefold(), row.organization_id.casefold()}]
        matches = matching or [row for row in reported if row.email.casefold() == name]
        if not matches:
            raise command_error("not_found", f"The service knows no invitation of {which}. See: runwarden orgs list")
        if len(ids := dict.fromkeys(invitation.organization_id for invitation in matches)) > 1:
            raise command_error("usage", f"{which} was invited to several organizations. Name one: {', '.join(ids)}.")
        report = await perform(invocation, engine, ResendInvitation(matches[0].invitation_id), options)
    return report()


@orgs.command("list")
@click.option("--cached", is_flag=True, help="Do not ask the service for the invitations.")
@async_command
async def list_organizations(invocation: Invocation, /, *, cached: bool) -> int:
    """List the organizations requested from here, newest first, with the states of their invitations.

    If the service does not report them, which the specification's own API cannot, an invitation is `unknown`.
    """
    async with invocation.ledger() as ledger:
        attempts = await ledger.organizations()
    reported: tuple[Invitation, ...] = ()
    if not cached and any(action.state == "confirmed" for action in attempts):
        try:
            async with invocation.engine(needs_token=True) as engine:
                reported = await engine.client.invitations()
        except NotOfferedError:
            pass
        except RunwardenError as error:
            invocation.output.note(f"The states of the invitations are unknown: {error}")
    now = utc_now()
    invited = {action.action_id: newest_invitation(reported, action.result_id, action.subject) for action in attempts}
    entries = [organization_document(action, invited[action.action_id]) for action in attempts]

    text = {a.action_id: short_state(invited[a.action_id], now)[0] if invited_until(a) else "" for a in attempts}
    columns: tuple[Column[Action], ...] = (
        Column("state", state_text, "state", lambda a: a.state),
        Column("email", lambda a: _field(a.body_json, "email"), "email", flexible=True),
        Column("organization", lambda a: _field(a.response_json, "organization_name"), "organization", flexible=True),
        Column("id", lambda a: a.result_id or "", "organization_id"),
        Column("asked", lambda a: exact_ago(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column("invitation", lambda a: text[a.action_id], "invitation_expires_at", lambda a: rfc3339(invited_until(a))),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    invocation.output.listing("organizations", entries, columns, attempts, empty="No organizations requested yet.")
    return Exit.DONE


def organization_document(action: Action, invitation: Invitation | None = None) -> dict[str, object]:
    """An attempt to create an organization, and its invitation; None is unknown."""
    body = as_received(action.body_json)
    reported = "invitation_id state sent_at expires_at accepted_at failure mail"
    return {
        **facts(action, "action_id state created_at settled_at resolution"),
        "email": body.get("email"),
        "offer_code": body.get("offer_code"),
        "organization": as_received(action.response_json) or None,
        "organization_id": action.result_id,
        "invitation_expires_at": rfc3339(invited_until(action)),
        "error": error_document(action),
        "invitation": invitation and facts(invitation, reported),
    }


def _field(document: str | None, name: str) -> str:
    return str(as_received(document).get(name) or "")


gitlab = CommandGroup("gitlab", help="Onboard GitLab projects.")


@gitlab.command("onboard", cls=WriteCommand, kind="gitlab.onboard")
@click.argument("project")
@write_options
@async_command
async def onboard(invocation: Invocation, /, *, project: str, **options: Any) -> int:
    """Onboard PROJECT: group/project, or its numeric id. Exit code 1 if GitLab refuses it."""
    name = project.removeprefix("gitlab:")
    is_id = name.isascii() and name.isdecimal() and len(name) <= MAX_ID
    request = OnboardProject(project_id=int(name)) if is_id else OnboardProject(project_path=name)
    return await send(invocation, request, WriteOptions(**options))
