"""`token`: API tokens; a value is printed once and never again (spec 5)."""

import click

from service.cli.output import AdminContext, admin_command, organization_option
from service.clock import now_micros, rfc3339
from service.setup import SetupError, TokenEntry, find_organization, make_token
from service.store import tokens
from service.store.tokens import SCOPES


@click.group("token")
def token() -> None:
    """API tokens."""


@token.command("create")
@organization_option
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), required=True)
@click.option("--alias", default="unnamed", show_default=True)
@click.option("--duration", default="30d", show_default=True, help="How long it is valid, such as 12h or 90d.")
@admin_command
def create(admin: AdminContext, slug: str, scopes: tuple[str, ...], alias: str, duration: str) -> None:
    """Create a token and print its value, which cannot be shown again."""
    entry = TokenEntry.model_validate({"alias": alias, "scopes": scopes, "duration": duration})
    with admin.change("token.create") as change:
        owner = find_organization(change.connection, slug)
        change.organization_id, change.detail = owner.id, " ".join(scopes)
        made, value = make_token(change.connection, owner, entry, now_micros())
        change.target = made.id
    document = {
        "id": made.id,
        "alias": made.alias,
        "scopes": list(made.scopes),
        "token": value,
        "value": value,
        "expires_at": rfc3339(made.expires_at),
    }
    admin.show(document, [value])


@token.command("list")
@organization_option
@admin_command
def list_all(admin: AdminContext, slug: str) -> None:
    """List an organization's tokens, without their values."""
    with admin.read() as connection:
        found = tokens.of(connection, find_organization(connection, slug).id)
    now = now_micros()
    documents = [
        {
            "id": one.id,
            "alias": one.alias,
            "scopes": list(one.scopes),
            "state": "valid" if one.is_valid(now) else "revoked" if one.revoked_at else "expired",
            "created_at": rfc3339(one.created_at),
            "expires_at": rfc3339(one.expires_at),
        }
        for one in found
    ]
    lines = [f"{one['id']}  {one['state']}  until {one['expires_at']}  {one['alias']}" for one in documents]
    admin.show({"tokens": documents}, lines)


@token.command("revoke")
@click.argument("token_id")
@admin_command
def revoke(admin: AdminContext, token_id: str) -> None:
    """Revoke a token; it stops working immediately."""
    with admin.change("token.revoke") as change:
        owner = tokens.revoke(change.connection, token_id, now_micros())
        if owner is None:
            raise SetupError(
                f"there is no active token {token_id!r}; list them with: runwarden service token list --org SLUG"
            )
        change.target, change.organization_id = token_id, owner
    admin.show({"id": token_id, "state": "revoked"}, [f"{token_id} revoked"])
