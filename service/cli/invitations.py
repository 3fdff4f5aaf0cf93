"""`invitation`: who was invited, what became of the mail, and another try."""

import os
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros, rfc3339
from service.mail.sender import CLAIM_MICROS, MailSender, mailer_of
from service.setup import SetupError, checked_email, find_organization
from service.store import invitations, mails
from service.store.database import Database
from service.store.invitations import Invitation


@click.group("invitation")
def command() -> None:
    """Invitations of administrators, and what became of their mails."""


def _document(one: Invitation, now: int) -> dict[str, Any]:
    state = one.state(now)
    return {
        "id": one.id,
        "organization_id": one.organization_id,
        "email": one.email,
        "state": state,
        "sent_at": None if one.sent_at is None else rfc3339(one.sent_at),
        "expires_at": rfc3339(one.expires_at),
        "attempts": one.attempts,
        "next_attempt_at": rfc3339(one.due_at) if state == "waiting" else None,
        "failure": one.failure,
    }


def _line(one: Invitation, now: int) -> str:
    said = "" if one.failure is None else f"  {one.failure}"
    return f"{one.id}  {one.state(now)}  until {rfc3339(one.expires_at)}  {one.email}  {one.organization_id}{said}"


def _show(desk: Desk, found: list[Invitation]) -> None:
    now = now_micros()
    desk.show({"invitations": [_document(one, now) for one in found]}, [_line(one, now) for one in found])


@command.command("list")
@click.option("--org", "slug", help="The organization's slug or id; all of them if left out.")
@administers
def list_all(desk: Desk, slug: str | None) -> None:
    """List invitations: waiting, sent, refused, accepted, withdrawn or expired."""
    with desk.read() as connection:
        owner = None if slug is None else find_organization(connection, slug).id
        found = invitations.all_of(connection, owner)
    _show(desk, found)


@command.command("send")
@click.argument("email")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@administers
def send(desk: Desk, email: str, slug: str) -> None:
    """Invite EMAIL to administer an organization; exit status 1 if the mail has not left yet."""
    address = checked_email(email)
    with desk.database() as database:
        with database.write() as connection:
            now = now_micros()
            owner = find_organization(connection, slug).id
            made = invitations.invite(connection, owner, address, now, due_at=now + CLAIM_MICROS)
        _conclude(desk, [_post(desk, database).deliver(made)])


@command.command("retry")
@click.argument("invitation_id", required=False)
@administers
def retry(desk: Desk, invitation_id: str | None) -> None:
    """Try mails that have not left, or were refused, at once: INVITATION_ID, or all; exit status 1 if one stays."""
    with desk.database() as database:
        post = _post(desk, database)
        with database.write() as connection:
            hastened = mails.hasten(connection, now_micros(), invitation_id)
        if invitation_id is not None and not hastened:
            raise SetupError(
                f"there is no mail to retry for {invitation_id!r}; list them with: runwarden service invitation list"
            )
        _conclude(desk, [post.claim_and_deliver(one) for one in hastened])


@command.command("withdraw")
@click.argument("invitation_id")
@administers
def withdraw(desk: Desk, invitation_id: str) -> None:
    """Close an invitation: its code opens nothing any more, and a mail that waits does not leave."""
    with desk.write() as connection:
        if not invitations.withdraw(connection, invitation_id, now_micros()):
            raise SetupError(
                f"there is no open invitation {invitation_id!r}; list them with: runwarden service invitation list"
            )
        found = invitations.by_id(connection, invitation_id)
    _show(desk, [] if found is None else [found])


def _post(desk: Desk, database: Database) -> MailSender:
    settings = desk.folder.settings().mail
    return MailSender(database, mailer_of(desk.folder, settings, os.environ), settings, now_micros)


def _conclude(desk: Desk, tried: list[Invitation | None]) -> None:
    found = [one for one in tried if one is not None]
    _show(desk, found)
    if any(one.mail != "sent" for one in found):
        raise SystemExit(1)
