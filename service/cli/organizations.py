"""`org` and `offer`: the directory of organizations, and the codes they sign up with."""

from collections.abc import Callable
from dataclasses import asdict, replace

import click

from service.cli.deletion import delete_organization
from service.cli.output import AdminContext, admin_command
from service.clock import now_micros, rfc3339
from service.setup import (
    DayBudget,
    OfferEntry,
    OrganizationEntry,
    SetupError,
    TokenEntry,
    find_organization,
    make_token,
)
from service.store import invitations, organizations, trials, turns
from service.store.organizations import ENTITLEMENTS, Organization
from service.store.trials import KINDS, Offer, Trial


@click.group("org")
def org() -> None:
    """Organizations."""


org.add_command(delete_organization)


def _document(one: Organization) -> dict[str, object]:
    return {
        "id": one.id,
        "name": one.name,
        "slug": one.slug,
        "parent_id": one.parent_id,
        "active": one.active,
        "entitlements": list(one.entitlements),
        "offer_code": one.offer_code,
        "created_at": rfc3339(one.created_at),
        "budget": {"day_usd": one.day_usd, "day_tokens": one.day_tokens},
    }


def _trial(trial: Trial | None) -> dict[str, object] | None:
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


@org.command("create")
@click.argument("name")
@click.option("--slug", help="Its short name; made from the name if left out.")
@click.option("--entitlement", "entitlements", multiple=True, type=click.Choice(ENTITLEMENTS))
@admin_command
def create(admin: AdminContext, name: str, slug: str | None, entitlements: tuple[str, ...]) -> None:
    """Create an organization."""
    entry = OrganizationEntry.model_validate({"name": name, "slug": slug, "entitlements": entitlements})
    with admin.change("organization.create", create=True) as change:
        if organizations.by_slug(change.connection, entry.slug or organizations.slug_of(name)):
            raise SetupError("an organization of that slug exists; choose another with --slug")
        made = organizations.create(
            change.connection, name=entry.name, slug=entry.slug, now=now_micros(), entitlements=entry.entitlements
        )
        change.target, change.organization_id, change.detail = made.id, made.id, " ".join(made.entitlements)
    admin.show(_document(made), [_line(made)])


@org.command("list")
@admin_command
def list_organizations(admin: AdminContext) -> None:
    """List organizations."""
    with admin.read() as connection:
        found = organizations.all_of(connection)
        documents = [_document(one) | {"trial": _trial(trials.of(connection, one.id))} for one in found]
    admin.show({"organizations": documents}, [_line(one) for one in found])


@org.command("deactivate")
@click.argument("slug")
@admin_command
def deactivate(admin: AdminContext, slug: str) -> None:
    """Make an organization inactive: tokens are refused until it is activated again, and its open turns are failed."""
    _change(admin, "deactivate", slug, lambda found: (False, {*found.entitlements}))


@org.command("activate")
@click.argument("slug")
@admin_command
def activate(admin: AdminContext, slug: str) -> None:
    """Make an inactive organization active again."""
    _change(admin, "activate", slug, lambda found: (True, {*found.entitlements}))


@org.command("grant")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
@admin_command
def grant(admin: AdminContext, slug: str, entitlement: str) -> None:
    """Give an organization an entitlement."""
    _change(admin, "grant", slug, lambda found: (found.active, {*found.entitlements, entitlement}), entitlement)


@org.command("withdraw")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
@admin_command
def withdraw(admin: AdminContext, slug: str, entitlement: str) -> None:
    """Take an entitlement from an organization; its existing tokens keep working until they are revoked."""
    _change(admin, "withdraw", slug, lambda found: (found.active, {*found.entitlements} - {entitlement}), entitlement)


def _change(
    admin: AdminContext,
    verb: str,
    slug: str,
    changed: Callable[[Organization], tuple[bool, set[str]]],
    detail: str | None = None,
) -> None:
    """Change an organization: whether it is active, and its entitlements."""
    with admin.change(f"organization.{verb}") as change:
        found = find_organization(change.connection, slug)
        change.target, change.organization_id, change.detail = found.id, found.id, detail
        active, entitled = changed(found)
        kept = tuple(one for one in ENTITLEMENTS if one in entitled)
        organizations.change(change.connection, found.id, active=active, entitlements=kept)
        if not active:
            # The organization is inactive by now, so no further run is accepted.
            turns.cancel_all(change.connection, found.id, "cancelled: the organization was deactivated", now_micros())
        now_is = find_organization(change.connection, found.id)
    admin.show(_document(now_is), [_line(now_is)])


@org.command("budget")
@click.argument("slug")
@click.option("--day-usd", type=float, help="US dollars, at the prices of the agents; without it there is no limit.")
@click.option("--day-tokens", type=int, help="Tokens; without it there is no limit.")
@admin_command
def budget(admin: AdminContext, slug: str, day_usd: float | None, day_tokens: int | None) -> None:
    """Set what all agents of an organization together may spend in one day (UTC); without options, as they like."""
    limits = DayBudget(day_usd=day_usd, day_tokens=day_tokens)
    with admin.change("organization.budget") as change:
        found = find_organization(change.connection, slug)
        organizations.limit_day(change.connection, found.id, limits.day_usd, limits.day_tokens)
        change.target, change.organization_id = found.id, found.id
        change.detail = f"day_usd={day_usd} day_tokens={day_tokens}"
        now_is = find_organization(change.connection, found.id)
    admin.show(_document(now_is), [_line(now_is)])


@org.command("accept-invitation")
@click.argument("code")
@admin_command
def accept_invitation(admin: AdminContext, code: str) -> None:
    """Turn an invitation code from a mail into the organization's first API token."""
    with admin.change("invitation.accept") as change:
        organization_id = invitations.accept(change.connection, code, now_micros())
        if organization_id is None:
            raise SetupError(
                "the invitation code is unknown, used or expired; "
                "make another with: runwarden service invitation send EMAIL --org SLUG"
            )
        found = find_organization(change.connection, organization_id)
        token, value = make_token(change.connection, found, TokenEntry(alias="first administrator"), now_micros())
        change.target, change.organization_id, change.detail = token.id, found.id, "its first token"
    document = {"organization": _document(found), "token": value, "expires_at": rfc3339(token.expires_at)}
    admin.show(document, [f"{found.slug}: {value}"])


@click.group("offer")
def offer() -> None:
    """Offer codes."""


def _offer_line(one: Offer | OfferEntry) -> str:
    return "  ".join([one.code, one.kind, *(["retired"] if one.retired else []), *([one.price] if one.price else [])])


@offer.command("add")
@click.argument("code")
@click.option("--kind", type=click.Choice(KINDS), required=True)
@click.option("--retired", is_flag=True, help="Still accepted; the trial will be the standard one.")
@click.option("--price", help="Free text; earlier signups at another price get the standard trial.")
@admin_command
def add(admin: AdminContext, code: str, *, kind: str, retired: bool, price: str | None) -> None:
    """Add an offer, or change the one with its code."""
    entry = OfferEntry.model_validate({"code": code, "kind": kind, "retired": retired, "price": price})
    with admin.change("offer.add", create=True) as change:
        change.target = entry.code
        trials.put_offer(change.connection, Offer(entry.code, entry.kind, entry.retired, entry.price))
    admin.show(entry.model_dump(), [_offer_line(entry)])


@offer.command("retire")
@click.argument("code")
@admin_command
def retire(admin: AdminContext, code: str) -> None:
    """Retire an offer: still accepted at signup, but with the standard trial."""
    with admin.change("offer.retire") as change:
        found = trials.offer_by_code(change.connection, code)
        if found is None:
            raise SetupError(f"there is no offer {code!r}; list them with: runwarden service offer list")
        retired = replace(found, retired=True)
        trials.put_offer(change.connection, retired)
        change.target = found.code
    admin.show(asdict(retired), [_offer_line(retired)])


@offer.command("list")
@admin_command
def list_offers(admin: AdminContext) -> None:
    """List offers."""
    with admin.read() as connection:
        found = trials.all_offers(connection)
    admin.show({"offers": [asdict(one) for one in found]}, [_offer_line(one) for one in found])
