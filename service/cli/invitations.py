"""`invitation` and `member`: who may sign in on the page, in which role, and whether their mails were sent."""

from collections.abc import Callable
from functools import partial
from typing import Final, get_args

import click

from service.cli.output import (
    AdminContext,
    AdminGroup,
    Row,
    any_org_option,
    fields_of,
    line,
    org_option,
    owner_of,
    require,
)
from service.clock import now_micros, rfc3339
from service.outgoing.mail import checked_address, deliver, mailer_of
from service.settings import Role
from service.setup import SetupError, find_organization
from service.store import invitations, sessions
from service.store.database import Database
from service.store.invitations import Invitation
from service.store.sessions import Member
from service.text import plural

invitation = AdminGroup("invitation", help="Invitations of members, and the state of their mails.")
member = AdminGroup("member", help="Members, who may sign in on the page with their address.")
_ROLES: Final = click.Choice(get_args(Role))


def _invitation(row: Invitation) -> Row:
    names = "id", "organization_id", "email", "role", "sent_at", "expires_at", "attempts", "failure"
    document, state = fields_of(row, *names), row.state(now_micros())
    document |= {"state": state, "next_attempt_at": rfc3339(row.due_at) if state == "waiting" else None}
    return document, line(row.id, state, f"until {document['expires_at']}", row.email, row.organization_id, row.failure)


@invitation.command("list")
@any_org_option
def list_all(admin: AdminContext, slug: str | None) -> None:
    """List invitations: waiting, sent, refused, accepted, withdrawn or expired."""
    with admin.read() as connection:
        rows = invitations.all_of(connection, owner_of(connection, slug))
    admin.show_rows("invitations", map(_invitation, rows))


@invitation.command("send")
@click.argument("email")
@org_option
@click.option("--role", type=_ROLES, default="admin", show_default=True)
def send(admin: AdminContext, email: str, slug: str, role: Role) -> None:
    """Invite EMAIL to an organization; exit status 1 if the mail is not sent yet."""
    address = _address(email)
    with admin.database() as database:
        with admin.change("invitation.send", database) as change:
            owner = change.of(slug).id
            invitation = change.target = invitations.invite(change.connection, owner, address, now_micros(), role)
        _conclude(admin, [_sender(admin, database)(invitation)])


@invitation.command("retry")
@click.argument("invitation_id", required=False)
def retry(admin: AdminContext, invitation_id: str | None) -> None:
    """Send unsent or refused mails now: INVITATION_ID, or all of them; exit status 1 if one is still unsent."""
    with admin.database() as database:
        sender = _sender(admin, database)
        with admin.change("invitation.retry", database) as change:
            rows = invitations.retry(change.connection, now_micros(), invitation_id)
            if invitation_id is not None:
                require(rows, "mail to retry for", invitation_id, "service invitation list")
            change.target, change.detail = invitation_id, plural(len(rows), "mail")
        _conclude(admin, [sender(row) for row in rows])


@invitation.command("withdraw")
@click.argument("invitation_id")
def withdraw(admin: AdminContext, invitation_id: str) -> None:
    """Close an invitation: its code no longer works, and a waiting mail is not sent."""
    with admin.change("invitation.withdraw") as change:
        is_withdrawn = invitations.withdraw(change.connection, invitation_id, now_micros())
        withdrawn = invitations.by_id(change.connection, invitation_id) if is_withdrawn else None
        row = require(withdrawn, "open invitation", invitation_id, "service invitation list")
        change.target, change.organization_id = invitation_id, row.organization_id
    admin.show_rows("invitations", [_invitation(row)])


def _member(row: Member) -> Row:
    document = fields_of(row, "id", "email", "role", "added_at")
    return document, line(row.email, row.role, f"since {document['added_at']}")


@member.command("list")
@org_option
def list_members(admin: AdminContext, slug: str) -> None:
    """List an organization's members with their roles."""
    with admin.read() as connection:
        rows = sessions.members_of(connection, find_organization(connection, slug).id)
    admin.show_rows("members", map(_member, rows))


@member.command("set")
@click.argument("email")
@org_option
@click.option("--role", type=_ROLES, required=True)
def set_member(admin: AdminContext, email: str, slug: str, role: Role) -> None:
    """Add the member EMAIL, or change their role."""
    address = _address(email)
    with admin.change("member.role") as change:
        owner = change.of(slug).id
        member = sessions.put_member(change.connection, owner, address, now_micros(), role)
        change.target, change.detail = member.id, role
    admin.show(*_member(member))


def _address(email: str) -> str:
    try:
        return checked_address(email)[0]
    except ValueError as error:
        raise SetupError(f"email: {error}") from error


def _sender(admin: AdminContext, database: Database) -> Callable[[str], Invitation | None]:
    settings = admin.folder.settings()
    return partial(deliver, database, mailer_of(admin.folder, settings.mail), settings, now_micros)


def _conclude(admin: AdminContext, tried: list[Invitation | None]) -> None:
    rows = [row for row in tried if row is not None]
    admin.show_rows("invitations", map(_invitation, rows))
    if any(row.mail != "sent" for row in rows):
        raise SystemExit(1)
