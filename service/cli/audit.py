"""`audit`: acts of administration, by whom and when."""

import click

from service.cli.output import AdminContext, admin_command
from service.clock import now_micros, parse_duration, parse_rfc3339, rfc3339
from service.setup import SetupError, find_organization
from service.store import audit as trail
from service.store.audit import AuditEntry


@click.group("audit")
def audit() -> None:
    """The audit trail of administration and tokens."""


def _document(one: AuditEntry) -> dict[str, object]:
    return {
        "id": one.id,
        "at": rfc3339(one.at),
        "actor": one.actor,
        "action": one.action,
        "outcome": one.outcome,
        "target": one.target,
        "organization_id": one.organization_id,
        "detail": one.detail,
    }


def _line(one: AuditEntry) -> str:
    what = [one.action, *([one.outcome] if one.outcome != trail.DONE else []), one.target or "-"]
    whose = [] if one.organization_id in {None, one.target} else [str(one.organization_id)]
    return "  ".join([rfc3339(one.at), one.actor, *what, *whose, *([one.detail] if one.detail else [])])


@audit.command("list")
@click.option("--org", "slug", help="An organization's slug or id; of a deleted one, its id.")
@click.option("--since", help="An age such as 7d, or an instant such as 2026-01-31T08:00:00Z.")
@click.option("--action", help="Such as token.revoke, or token for all that begins with it.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="The latest so many.")
@admin_command
def list_all(admin: AdminContext, slug: str | None, since: str | None, action: str | None, limit: int) -> None:
    """List acts of administration, by whom and when, the latest at the end."""
    begin = None if since is None else _instant(since)
    with admin.read() as connection:
        # A deleted organization has no slug any longer, but its id is still in the trail.
        is_id = slug is not None and slug.startswith("org_")
        owner = slug if slug is None or is_id else find_organization(connection, slug).id
        found = trail.latest(connection, limit, organization_id=owner, since=begin, action=action)
    admin.show({"entries": [_document(one) for one in found]}, [_line(one) for one in found])


def _instant(text: str) -> int:
    try:
        return parse_rfc3339(text, round_up=True) if "-" in text else now_micros() - parse_duration(text)
    except ValueError as error:
        raise SetupError(f"--since: {error}") from error
