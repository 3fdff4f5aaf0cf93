"""Invitations, each open to one member for 30 days, and their mails, stored until sent (spec 3, 4.1)."""

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, SECOND_MICROS, Micros
from service.settings import Role
from service.store import audit, events
from service.store.database import lock_subject
from service.store.rows import optional_filter, record_of, records_of, update
from service.store.schema import invitations, organizations
from service.text import storable

LIFE_MICROS: Final = 30 * DAY_MICROS
_FIRST_DELIVERY_MICROS: Final = 600 * SECOND_MICROS
"""How long the process that created an invitation has to send its mail, before a worker sends it."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation and the state of its mail."""

    id: str
    organization_id: str
    email: str
    role: Role
    sent_at: Micros | None
    expires_at: Micros
    accepted_at: Micros | None
    mail: str
    """The state of the mail: `waiting`, `sent`, `refused` or `withdrawn`."""
    attempts: int
    due_at: Micros
    """When a waiting mail is sent or retried."""
    failure: str | None

    def state(self, now: Micros) -> str:
        """`accepted`, `withdrawn`, `expired`, or the state of the mail: `waiting`, `sent`, `refused`."""
        if self.accepted_at is not None:
            return "accepted"
        if self.mail == "withdrawn":
            return self.mail
        return "expired" if self.expires_at <= now else self.mail


def invite(connection: sa.Connection, organization_id: str, email: str, now: Micros, role: Role = "admin") -> str:
    """Record an invitation and its mail, which the caller sends next; return the invitation's id.

    It replaces the organization's open ones of this address. If the caller dies, a worker sends the mail after ten
    minutes.
    """
    lock_subject(connection, "members", organization_id)
    withdraw_all(connection, organization_id, email, now)
    invitation_id, code = f"inv_{ids.ulid(now)}", ids.new_token()
    values = {"id": invitation_id, "organization_id": organization_id, "email": email, "role": role}
    secret = {"code": code, "code_digest": ids.digest(code), "expires_at": now + LIFE_MICROS}
    mail = {"mail": "waiting", "attempts": 0, "due_at": now + _FIRST_DELIVERY_MICROS}
    connection.execute(sa.insert(invitations).values(values | secret | mail))
    return invitation_id


def by_id(connection: sa.Connection, invitation_id: str) -> Invitation | None:
    # It may come from a URL, and PostgreSQL refuses NUL as a parameter.
    return record_of(connection, Invitation, invitations, id=storable(invitation_id))


def all_of(connection: sa.Connection, organization_id: str | None = None) -> list[Invitation]:
    is_own = optional_filter(invitations.c.organization_id, organization_id)
    return records_of(connection, Invitation, invitations, is_own, order=[invitations.c.id])


def made_by(connection: sa.Connection, parent_id: str, limit: int) -> list[Invitation]:
    """Return the invitations to organizations that a partner created, newest first, at most `most`."""
    created = sa.select(organizations.c.id).where(organizations.c.parent_id == parent_id).scalar_subquery()
    theirs = invitations.c.organization_id.in_(created)
    return records_of(connection, Invitation, invitations, theirs, order=[invitations.c.id.desc()], limit=limit)


def invite_again(connection: sa.Connection, old: Invitation, actor: str, now: Micros) -> str | None:
    """Replace an invitation with a new one that has a new code; return its id, or None if the old one was accepted."""
    if old.state(now) in {"accepted", "withdrawn"}:
        return None
    new_id = invite(connection, old.organization_id, old.email, now, old.role)
    for action, target in (("invitation.withdraw", old.id), ("invitation.send", new_id)):
        audit.record(connection, actor, action, now, target=target, organization_id=old.organization_id)
    return new_id


def by_code(connection: sa.Connection, code: str) -> Invitation | None:
    return record_of(connection, Invitation, invitations, code_digest=ids.digest(code))


def accept(connection: sa.Connection, code: str, now: Micros) -> str | None:
    """Accept an invitation and return its organization's id; None if the code is unknown, used or expired."""
    if (invitation := by_code(connection, code)) is None:
        return None
    owner = invitation.organization_id
    lock_subject(connection, "members", owner)
    is_open = (invitations.c.accepted_at.is_(None), invitations.c.expires_at > now)
    if not update(connection, invitations, invitations.c.id == invitation.id, *is_open, accepted_at=now):
        return None
    data = {"organization_id": owner, "invitation_id": invitation.id, "email": invitation.email}
    events.record(connection, owner, "invitation.accepted", data, now)
    return owner


def withdraw_all(connection: sa.Connection, organization_id: str, email: str, now: Micros) -> None:
    """Withdraw an organization's open invitations of an address; the caller holds the lock on its members."""
    for invitation in all_of(connection, organization_id):
        if invitation.email.lower() == email.lower():
            withdraw(connection, invitation.id, now)


def withdraw(connection: sa.Connection, invitation_id: str, now: Micros) -> bool:
    """Close an invitation permanently and stop its mail; False if none that is unused and not withdrawn has that id."""
    # Expired invitations too, since they could be sent again.
    unused = (invitations.c.id == invitation_id, invitations.c.accepted_at.is_(None), invitations.c.mail != "withdrawn")
    return update(connection, invitations, *unused, expires_at=now, mail="withdrawn", code=None) > 0


def waiting_code(connection: sa.Connection, invitation_id: str) -> str | None:
    """Return the code in a waiting mail; None if the mail was sent or refused, or does not exist."""
    return connection.scalar(sa.select(invitations.c.code).where(*_waits(invitation_id)))


def mark_sent(connection: sa.Connection, invitation_id: str, now: Micros) -> None:
    """Record that a mail was sent, even if it was withdrawn meanwhile; its code is deleted."""
    update(connection, invitations, invitations.c.id == invitation_id, sent_at=now)
    sent = {"attempts": invitations.c.attempts + 1, "mail": "sent", "code": None, "failure": None}
    update(connection, invitations, *_waits(invitation_id), **sent)


def mark_failed(connection: sa.Connection, invitation_id: str, failure: str, *, due_at: Micros | None) -> None:
    """Record why a mail was not sent and when to retry; None if it was refused and is not retried."""
    then: dict[str, object] = {"mail": "refused"} if due_at is None else {"due_at": due_at}
    values = {"attempts": invitations.c.attempts + 1, "failure": failure, **then}
    update(connection, invitations, *_waits(invitation_id), **values)


def retry(connection: sa.Connection, now: Micros, invitation_id: str | None) -> list[str]:
    """Let the caller send unsent mails now, including refused ones; return their invitations."""
    unsent = (invitations.c.mail.in_(("waiting", "refused")), invitations.c.code.is_not(None))
    again = sa.update(invitations).where(*unsent, optional_filter(invitations.c.id, invitation_id))
    again = again.values(mail="waiting", due_at=now + _FIRST_DELIVERY_MICROS)
    return sorted(connection.scalars(again.returning(invitations.c.id)))


def _waits(invitation_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    # Withdrawn mails are left out.
    return invitations.c.id == invitation_id, invitations.c.mail == "waiting"
