"""`org`: the directory of organizations."""

from collections.abc import Callable
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros, rfc3339
from service.entries import OrganizationEntry, TokenEntry
from service.setup import SetupError, find_organization, make_token
from service.store import invitations, organizations, trials
from service.store.organizations import ENTITLEMENTS, Organization
from service.store.trials import Trial


@click.group("org")
def command() -> None:
    """Organizations."""


def _document(one: Organization) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "slug": one.slug,
        "parent_id": one.parent_id,
        "active": one.active,
        "entitlements": list(one.entitlements),
        "offer_code": one.offer_code,
        "created_at": rfc3339(one.created_at),
    }


def _trial(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "state": trial.state,
        "signup_code": trial.signup_code,
        "granted_code": trial.granted_code,
        "started_at": None if trial.started_at is None else rfc3339(trial.started_at),
    }


def _line(one: Organization) -> str:
    return f"{one.slug}  {one.id}  {'active' if one.active else 'inactive'}  {','.join(one.entitlements)}  {one.name}"


@command.command("create")
@click.argument("name")
@click.option("--slug", help="Its short name; made from the name if left out.")
@click.option("--entitlement", "entitlements", multiple=True, type=click.Choice(ENTITLEMENTS))
@administers
def create(desk: Desk, name: str, slug: str | None, entitlements: tuple[str, ...]) -> None:
    """Create an organization."""
    entry = OrganizationEntry.model_validate({"name": name, "slug": slug, "entitlements": entitlements})
    with desk.write(create=True) as connection:
        if organizations.by_slug(connection, entry.slug or organizations.slug_of(name)):
            raise SetupError("an organization of that slug exists; choose another with --slug")
        made = organizations.create(
            connection, name=entry.name, slug=entry.slug, now=now_micros(), entitlements=entry.entitlements
        )
    desk.show(_document(made), [_line(made)])


@command.command("list")
@administers
def list_all(desk: Desk) -> None:
    """List organizations."""
    with desk.read() as connection:
        found = organizations.all_of(connection)
        documents = [_document(one) | {"trial": _trial(trials.of(connection, one.id))} for one in found]
    desk.show({"organizations": documents}, [_line(one) for one in found])


@command.command("deactivate")
@click.argument("slug")
@administers
def deactivate(desk: Desk, slug: str) -> None:
    """Make an organization inactive: its tokens open nothing until it is activated again."""
    _change(desk, slug, lambda found: (False, {*found.entitlements}))


@command.command("activate")
@click.argument("slug")
@administers
def activate(desk: Desk, slug: str) -> None:
    """Make an inactive organization active again."""
    _change(desk, slug, lambda found: (True, {*found.entitlements}))


@command.command("grant")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
@administers
def grant(desk: Desk, slug: str, entitlement: str) -> None:
    """Give an organization an entitlement."""
    _change(desk, slug, lambda found: (found.active, {*found.entitlements, entitlement}))


@command.command("withdraw")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
@administers
def withdraw(desk: Desk, slug: str, entitlement: str) -> None:
    """Take an entitlement from an organization; the tokens it has keep working until they are revoked."""
    _change(desk, slug, lambda found: (found.active, {*found.entitlements} - {entitlement}))


def _change(desk: Desk, slug: str, changed: Callable[[Organization], tuple[bool, set[str]]]) -> None:
    """Set what an operator may change: whether it is active, and its entitlements."""
    with desk.write() as connection:
        found = find_organization(connection, slug)
        active, entitled = changed(found)
        kept = tuple(one for one in ENTITLEMENTS if one in entitled)
        organizations.change(connection, found.id, active=active, entitlements=kept)
        now_is = find_organization(connection, found.id)
    desk.show(_document(now_is), [_line(now_is)])


@command.command("accept-invitation")
@click.argument("code")
@administers
def accept_invitation(desk: Desk, code: str) -> None:
    """Turn an invitation code from a mail into the organization's first API token."""
    with desk.write() as connection:
        organization_id = invitations.accept(connection, code, now_micros())
        if organization_id is None:
            raise SetupError(
                "the invitation code is unknown, used or expired; "
                "make another with: runwarden service invitation send EMAIL --org SLUG"
            )
        found = find_organization(connection, organization_id)
        token, value = make_token(connection, found, TokenEntry(alias="first administrator"), now_micros())
    document = {"organization": _document(found), "token": value, "expires_at": rfc3339(token.expires_at)}
    desk.show(document, [f"{found.slug}: {value}"])
