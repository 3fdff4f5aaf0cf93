"""`runwarden orgs` and `runwarden gitlab`: organizations and projects, onboarded once each (spec 4.1, 4.6)."""

import json
from datetime import datetime
from typing import Any, Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output.documents import invitation_ends_at, organization_document, state_text
from app.cli.output.table import Column
from app.cli.writes.command import (
    WriteCommand,
    WriteOptions,
    submit,
    write_options,
)
from app.cli.writes.org_import import import_organizations
from app.run_document import as_received
from app.times import exact_ago, rfc3339
from storage.records import Action
from storage.values import utc_now

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
