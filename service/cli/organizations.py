"""`org`, `token` and `offer`: organizations, their API tokens, and the codes they sign up with."""

from dataclasses import asdict, replace

import click
from pydantic import TypeAdapter

from service.cli.output import AdminContext, AdminGroup, Row, fields_of, line, org_option, require
from service.cli.runs import delete_organization
from service.clock import now_micros, rfc3339
from service.setup import DayBudget, OrganizationEntry, SetupError, TokenEntry, find_organization, make_token, welcome
from service.store import invitations, organizations, tokens, turns
from service.store.organizations import ENTITLEMENTS, OFFER_KINDS, Offer, Organization
from service.store.rows import by_owner
from service.store.schema import trials
from service.store.tokens import SCOPES
from service.text import plural

org = AdminGroup("org", help="Organizations.")
offer = AdminGroup("offer", help="Offer codes.")
token = AdminGroup("token", help="API tokens.")
org.add_command(delete_organization)


def _organization(row: Organization) -> Row:
    names = "id", "name", "slug", "parent_id", "active", "entitlements", "offer_code", "created_at"
    document = fields_of(row, *names) | {"budget": fields_of(row, "day_usd", "day_tokens")}
    state = "active" if row.active else "inactive"
    return document, f"{row.slug}  {row.id}  {state}  {','.join(row.entitlements)}  {row.name}"


@org.command("create")
@click.argument("name")
@click.option("--slug", help="Its short name; made from the name if left out.")
@click.option("--entitlement", "entitlements", multiple=True, type=click.Choice(ENTITLEMENTS))
def create(admin: AdminContext, name: str, slug: str | None, entitlements: tuple[str, ...]) -> None:
    """Create an organization."""
    entry = OrganizationEntry.model_validate({"name": name, "slug": slug, "entitlements": entitlements})
    with admin.change("organization.create", create=True) as change:
        if organizations.by_slug(change.connection, slug := entry.wanted_slug):
            raise SetupError(f"an organization with the slug {slug} exists; choose another with --slug")
        created = organizations.create(
            change.connection, name=entry.name, slug=entry.slug, now=now_micros(), entitlements=entry.entitlements
        )
        change.target, change.organization_id, change.detail = created.id, created.id, " ".join(created.entitlements)
    admin.show(*_organization(created))


@org.command("list")
def list_organizations(admin: AdminContext) -> None:
    """List organizations."""
    with admin.read() as connection:
        rows = organizations.all_of(connection)
        trial_of = by_owner(connection, organizations.Trial, trials, [row.id for row in rows])
    started = {
        owner: fields_of(trial, "state", "signup_code", "granted_code", "started_at")
        for owner, (trial,) in trial_of.items()
    }
    documents = ((row.id, *_organization(row)) for row in rows)
    admin.show_rows(
        "organizations", (({**document, "trial": started.get(key)}, text) for key, document, text in documents)
    )


@org.command("deactivate")
@click.argument("slug")
def deactivate(admin: AdminContext, slug: str) -> None:
    """Make an organization inactive: its tokens are refused until it is activated again; open turns are cancelled."""
    _change(admin, "deactivate", slug, active=False)


@org.command("activate")
@click.argument("slug")
def activate(admin: AdminContext, slug: str) -> None:
    """Make an inactive organization active again."""
    _change(admin, "activate", slug, active=True)


@org.command("grant")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
def grant(admin: AdminContext, slug: str, entitlement: str) -> None:
    """Give an organization an entitlement."""
    _change(admin, "grant", slug, given=entitlement)


@org.command("withdraw")
@click.argument("slug")
@click.argument("entitlement", type=click.Choice(ENTITLEMENTS))
def withdraw(admin: AdminContext, slug: str, entitlement: str) -> None:
    """Take an entitlement from an organization; its existing tokens keep working until they are revoked."""
    _change(admin, "withdraw", slug, taken=entitlement)


def _change(
    admin: AdminContext, verb: str, slug: str, *, active: bool | None = None, given: str = "", taken: str = ""
) -> None:
    with admin.change(f"organization.{verb}") as change:
        organization = change.of(slug)
        change.target, change.detail = organization.id, given or taken or None
        active = organization.active if active is None else active
        wanted = {*organization.entitlements, given} - {taken}
        entitlements = tuple(name for name in ENTITLEMENTS if name in wanted)
        organizations.change(change.connection, organization.id, active=active, entitlements=entitlements)
        cancelled = None
        if not active:
            # The organization is inactive by now, so no further run is accepted.
            reason = "cancelled: the organization was deactivated"
            cancelled = turns.cancel_all(change.connection, organization.id, reason, now_micros())
        now_is = find_organization(change.connection, organization.id)
    document, *lines = _organization(now_is)
    if cancelled is not None:
        document = {**document, "cancelled_turns": cancelled}
        lines.append(f"{plural(cancelled, 'open turn')} cancelled")
    admin.show(document, *lines)


@org.command("budget")
@click.argument("slug")
@click.option("--day-usd", type=float, help="US dollars, at the prices of the agents.")
@click.option("--day-tokens", type=int, help="Tokens.")
@click.option("--no-limit", is_flag=True, help="Remove the limits that are not given.")
def budget(admin: AdminContext, slug: str, day_usd: float | None, day_tokens: int | None, *, no_limit: bool) -> None:
    """Set what all agents of an organization together may spend in one day (UTC); without options, show it."""
    if day_usd is None and day_tokens is None and not no_limit:
        with admin.read() as connection:
            now_is = find_organization(connection, slug)
    else:
        with admin.change("organization.budget") as change:
            organization = change.of(slug)
            before = {} if no_limit else {"day_usd": organization.day_usd, "day_tokens": organization.day_tokens}
            options = {"day_usd": day_usd, "day_tokens": day_tokens}
            changed = {name: value for name, value in options.items() if value is not None}
            limits = DayBudget.model_validate(before | changed)
            organizations.change(change.connection, organization.id, **limits.model_dump())
            change.target = organization.id
            change.detail = f"day_usd={limits.day_usd} day_tokens={limits.day_tokens}"
            now_is = find_organization(change.connection, organization.id)
    limits_now = {"US dollars": now_is.day_usd, "tokens": now_is.day_tokens}
    texts = [f"{limit:,g} {unit}" for unit, limit in limits_now.items() if limit is not None]
    admin.show(*_organization(now_is), f"a day: {' and '.join(texts) or 'no limit'}")


@org.command("accept-invitation")
@click.argument("code")
def accept_invitation(admin: AdminContext, code: str) -> None:
    """Turn an invitation code from a mail into a member and their first API token."""
    with admin.change("invitation.accept") as change:
        organization_id = invitations.accept(change.connection, code, now_micros())
        invitation = invitations.by_code(change.connection, code)
        if organization_id is None or invitation is None:
            raise SetupError(
                "the invitation code is unknown, used or expired; "
                "make another with: runwarden service invitation send EMAIL --org SLUG"
            )
        organization = change.of(organization_id)
        _, token, value = welcome(change.connection, organization, invitation, now_micros())
        change.target, change.detail = token.id, "its first token"
    shown, _ = _organization(organization)
    document = {"organization": shown, "token": value, "expires_at": rfc3339(token.expires_at)}
    admin.show(document, f"{organization.slug}: {value}")


def _offer(row: Offer) -> Row:
    return asdict(row), line(row.code, row.kind, "retired" if row.retired else "", row.price)


@offer.command("add")
@click.argument("code")
@click.option("--kind", type=click.Choice(OFFER_KINDS), required=True)
@click.option("--retired/--in-force", default=None, help="Retired: signups with it get the standard trial.")
@click.option("--price", help="Free text, '' for none; earlier signups at another price get the standard trial.")
def add(admin: AdminContext, code: str, *, kind: str, retired: bool | None, price: str | None) -> None:
    """Add an offer, or change the one with its code, which keeps what is not given."""
    options = {"code": code, "kind": kind, "retired": retired, "price": price}
    options = {name: value for name, value in options.items() if value is not None}
    with admin.change("offer.add", create=True) as change:
        before = organizations.offer_by_code(change.connection, code)
        values = (asdict(before) if before else {}) | options
        offer = TypeAdapter(Offer).validate_python(values | {"price": values.get("price") or None})
        change.target = offer.code
        organizations.put_offer(change.connection, offer)
    admin.show(*_offer(offer))


@offer.command("retire")
@click.argument("code")
def retire(admin: AdminContext, code: str) -> None:
    """Retire an offer: still accepted at signup, but with the standard trial."""
    with admin.change("offer.retire") as change:
        offer = require(organizations.offer_by_code(change.connection, code), "offer", code, "service offer list")
        retired = replace(offer, retired=True)
        organizations.put_offer(change.connection, retired)
        change.target = offer.code
    admin.show(*_offer(retired))


@offer.command("list")
def list_offers(admin: AdminContext) -> None:
    """List offers."""
    with admin.read() as connection:
        rows = organizations.all_offers(connection)
    admin.show_rows("offers", map(_offer, rows))


@token.command("create")
@org_option
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), required=True)
@click.option("--alias", default="unnamed", show_default=True)
@click.option("--duration", default="30d", show_default=True, help="How long it is valid, such as 12h or 90d.")
def create_token(admin: AdminContext, slug: str, scopes: tuple[str, ...], alias: str, duration: str) -> None:
    """Create a token and print its value, which cannot be shown again."""
    entry = TokenEntry.model_validate({"alias": alias, "scopes": scopes, "duration": duration})
    with admin.change("token.create") as change:
        change.detail = " ".join(scopes)
        token, value = make_token(change.connection, change.of(slug), entry, now_micros())
        change.target = token.id
    document = fields_of(token, "id", "alias", "scopes", "expires_at")
    admin.show(document | {"token": value, "value": value}, value)


@token.command("list")
@org_option
def list_tokens(admin: AdminContext, slug: str) -> None:
    """List an organization's tokens, without their values."""
    with admin.read() as connection:
        rows = tokens.of(connection, find_organization(connection, slug).id)
    now, documents = now_micros(), list[Row]()
    for row in rows:
        reason = "revoked" if row.revoked_at else "expired"
        state = "valid" if row.is_valid(now) else reason
        document = fields_of(row, "id", "alias", "scopes", "created_at", "expires_at") | {"state": state}
        text = line(row.id, state, f"until {document['expires_at']}", ",".join(row.scopes), row.alias)
        documents.append((document, text))
    admin.show_rows("tokens", documents)


@token.command("revoke")
@click.argument("token_id")
def revoke(admin: AdminContext, token_id: str) -> None:
    """Revoke a token; it stops working immediately."""
    with admin.change("token.revoke") as change:
        revoked = tokens.revoke(change.connection, token_id, now_micros())
        owner = require(revoked, "active token", token_id, "service token list --org SLUG")
        change.target, change.organization_id = token_id, owner
    admin.show({"id": token_id, "state": "revoked"}, f"{token_id} revoked")
