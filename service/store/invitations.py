"""Invitations: doors to an organization that stay open for 30 days and let one administrator in (spec 3, 4.1)."""

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS
from service.store import mails
from service.store.schema import invitations
from service.store.schema import mails as mail_table

LIFE_MICROS: Final = 30 * DAY_MICROS


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation and how far its mail came."""

    id: str
    organization_id: str
    email: str
    sent_at: int | None
    expires_at: int
    accepted_at: int | None
    mail: str
    """State of the mail: `waiting`, `sent`, `refused` or `withdrawn`."""
    attempts: int
    due_at: int
    """When a waiting mail is tried again."""
    failure: str | None
    """Why the last attempt failed."""

    def state(self, now: int) -> str:
        """`accepted`, `withdrawn`, `expired`, or what became of the mail: `waiting`, `sent`, `refused`."""
        if self.accepted_at is not None:
            return "accepted"
        if self.mail == "withdrawn":
            return self.mail
        return "expired" if self.expires_at <= now else self.mail


def invite(connection: sa.Connection, organization_id: str, email: str, now: int, *, due_at: int) -> str:
    """Record an invitation and the mail that shall carry it; return the invitation's id.

    `due_at` is when whoever delivers mail takes this one up; until then it belongs to the caller.
    """
    invitation_id = f"inv_{ids.ulid(now)}"
    code = ids.new_token()
    connection.execute(
        sa.insert(invitations).values(
            id=invitation_id,
            organization_id=organization_id,
            email=email,
            code_digest=ids.digest(code),
            expires_at=now + LIFE_MICROS,
        )
    )
    mails.put(connection, invitation_id, code, due_at)
    return invitation_id


def by_id(connection: sa.Connection, invitation_id: str) -> Invitation | None:
    """Return the invitation with an id."""
    row = connection.execute(_select().where(invitations.c.id == invitation_id)).first()
    return None if row is None else Invitation(*row)


def all_of(connection: sa.Connection, organization_id: str | None = None) -> list[Invitation]:
    """Return the invitations of an organization, or of all of them, oldest first."""
    chosen = _select() if organization_id is None else _select().where(invitations.c.organization_id == organization_id)
    return [Invitation(*row) for row in connection.execute(chosen.order_by(invitations.c.id))]


def accept(connection: sa.Connection, code: str, now: int) -> str | None:
    """Use up an invitation and return its organization's id; None when the code is unknown, used or expired."""
    return connection.execute(
        sa.update(invitations)
        .where(
            invitations.c.code_digest == ids.digest(code),
            invitations.c.accepted_at.is_(None),
            invitations.c.expires_at > now,
        )
        .values(accepted_at=now)
        .returning(invitations.c.organization_id)
    ).scalar()


def withdraw(connection: sa.Connection, invitation_id: str, now: int) -> bool:
    """Close an invitation and stop its mail; False when there is no open one of that id."""
    closed = connection.execute(
        sa.update(invitations)
        .where(invitations.c.id == invitation_id, invitations.c.accepted_at.is_(None), invitations.c.expires_at > now)
        .values(expires_at=now)
    )
    if closed.rowcount:
        mails.withdraw(connection, invitation_id)
    return closed.rowcount > 0


def _select() -> sa.Select[tuple[Any, ...]]:
    of_mail = (mail_table.c.state, mail_table.c.attempts, mail_table.c.due_at, mail_table.c.failure)
    own = [invitations.c[field] for field in Invitation.__slots__ if field in invitations.c]
    return sa.select(*own, *of_mail).join(mail_table, mail_table.c.invitation_id == invitations.c.id)
