"""`invitation` and `member`: who may sign in on the page, in which role, and whether their mails were sent."""

from collections.abc import Callable
from functools import partial
from typing import Final, get_args

import click

from service.cli.output import AdminContext, admin_command, line, missing, organization_option, owner_of
from service.clock import now_micros, rfc3339, rfc3339_or_none
from service.mail import checked_address, deliver, mailer_of
from service.settings import Role
from service.setup import SetupError, find_organization
from service.store import invitations, sessions
from service.store.database import Database
from service.store.invitations import Invitation
from service.store.sessions import Member
from service.text import plural

_ROLES: Final = click.Choice(get_args(Role))


@click.group("invitation")
def invitation() -> None:
    """Invitations of members, and the state of their mails."""


def _show(admin: AdminContext, found: list[Invitation]) -> None:
    now = now_micros()
    documents = [
        {"id": one.id, "organization_id": one.organization_id, "email": one.email, "role": one.role}
        | {"sent_at": rfc3339_or_none(one.sent_at), "expires_at": rfc3339(one.expires_at)}
        | {"attempts": one.attempts, "failure": one.failure, "state": one.state(now)}
        | {"next_attempt_at": rfc3339(one.due_at) if one.state(now) == "waiting" else None}
        for one in found
    ]
    lines = [
        line(one.id, one.state(now), f"until {rfc3339(one.expires_at)}", one.email, one.organization_id, one.failure)
        for one in found
    ]
    admin.show({"invitations": documents}, lines)


@invitation.command("list")
@click.option("--org", "slug", help="The organization's slug or id; all of them if left out.")
@admin_command
def list_all(admin: AdminContext, slug: str | None) -> None:
    """List invitations: waiting, sent, refused, accepted, withdrawn or expired."""
    with admin.read() as connection:
        found = invitations.all_of(connection, owner_of(connection, slug))
    _show(admin, found)


@invitation.command("send")
@click.argument("email")
@organization_option
@click.option("--role", type=_ROLES, default="admin", show_default=True)
@admin_command
def send(admin: AdminContext, email: str, slug: str, role: Role) -> None:
    """Invite EMAIL to an organization; exit status 1 if the mail is not sent yet."""
    address = _address(email)
    with admin.database() as database:
        with admin.change("invitation.send", database) as change:
            owner = change.of(slug).id
            made = change.target = invitations.invite(change.connection, owner, address, now_micros(), role)
        _conclude(admin, [_sender(admin, database)(made)])


@invitation.command("retry")
@click.argument("invitation_id", required=False)
@admin_command
def retry(admin: AdminContext, invitation_id: str | None) -> None:
    """Send unsent or refused mails now: INVITATION_ID, or all of them; exit status 1 if one is still unsent."""
    with admin.database() as database:
        sender = _sender(admin, database)
        with admin.change("invitation.retry", database) as change:
            found = invitations.retry(change.connection, now_micros(), invitation_id)
            if invitation_id is not None and not found:
                raise missing("mail to retry for", invitation_id, "service invitation list")
            change.target, change.detail = invitation_id, plural(len(found), "mail")
        _conclude(admin, [sender(one) for one in found])


@invitation.command("withdraw")
@click.argument("invitation_id")
@admin_command
def withdraw(admin: AdminContext, invitation_id: str) -> None:
    """Close an invitation: its code no longer works, and a waiting mail is not sent."""
    with admin.change("invitation.withdraw") as change:
        if not invitations.withdraw(change.connection, invitation_id, now_micros()):
            raise missing("open invitation", invitation_id, "service invitation list")
        found = invitations.by_id(change.connection, invitation_id)
        change.target = invitation_id
        change.organization_id = None if found is None else found.organization_id
    _show(admin, [] if found is None else [found])


@click.group("member")
def member() -> None:
    """Members, who may sign in on the page with their address."""


def _member(one: Member) -> dict[str, object]:
    return {"id": one.id, "email": one.email, "role": one.role, "added_at": rfc3339(one.added_at)}


@member.command("list")
@organization_option
@admin_command
def list_members(admin: AdminContext, slug: str) -> None:
    """List an organization's members with their roles."""
    with admin.read() as connection:
        found = sessions.members_of(connection, find_organization(connection, slug).id)
    _show_members(admin, {"members": [_member(one) for one in found]}, found)


@member.command("set")
@click.argument("email")
@organization_option
@click.option("--role", type=_ROLES, required=True)
@admin_command
def set_member(admin: AdminContext, email: str, slug: str, role: Role) -> None:
    """Add the member EMAIL, or change their role."""
    address = _address(email)
    with admin.change("member.role") as change:
        owner = change.of(slug).id
        kept = sessions.put_member(change.connection, owner, address, now_micros(), role)
        change.target, change.detail = kept.id, role
    _show_members(admin, _member(kept), [kept])


def _show_members(admin: AdminContext, document: dict[str, object], found: list[Member]) -> None:
    admin.show(document, [line(one.email, one.role, f"since {rfc3339(one.added_at)}") for one in found])


def _address(email: str) -> str:
    try:
        return checked_address(email)[0]
    except ValueError as error:
        raise SetupError(f"email: {error}") from error


def _sender(admin: AdminContext, database: Database) -> Callable[[str], Invitation | None]:
    settings = admin.folder.settings()
    return partial(deliver, database, mailer_of(admin.folder, settings.mail), settings, now_micros)


def _conclude(admin: AdminContext, tried: list[Invitation | None]) -> None:
    found = [one for one in tried if one is not None]
    _show(admin, found)
    if any(one.mail != "sent" for one in found):
        raise SystemExit(1)
