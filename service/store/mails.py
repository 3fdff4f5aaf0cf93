"""Mails under way: each is in the database from the moment it is owed until it left, whoever dies in between."""

from dataclasses import dataclass

import sqlalchemy as sa

from service.store.schema import invitations, mails, organizations


@dataclass(frozen=True, slots=True)
class OwedMail:
    """What is needed to write the mail of an invitation."""

    invitation_id: str
    organization_id: str
    organization_name: str
    organization_slug: str
    parent_name: str | None
    """None: the operator made the organization."""
    email: str
    code: str
    expires_at: int
    attempts: int
    """How often it was tried before."""


def put(connection: sa.Connection, invitation_id: str, code: str, due_at: int) -> None:
    """Record that a mail is owed, to be tried at an instant."""
    connection.execute(
        sa.insert(mails).values(
            invitation_id=invitation_id, code=code, state="waiting", attempts=0, due_at=due_at, failure=None
        )
    )


def owed(connection: sa.Connection, invitation_id: str) -> OwedMail | None:
    """Return a waiting mail; None when it has left, was refused, or never was."""
    parent = organizations.alias("parent")
    chosen = (
        sa.select(
            invitations.c.id,
            organizations.c.id,
            organizations.c.name,
            organizations.c.slug,
            parent.c.name,
            invitations.c.email,
            mails.c.code,
            invitations.c.expires_at,
            mails.c.attempts,
        )
        .join(invitations, invitations.c.id == mails.c.invitation_id)
        .join(organizations, organizations.c.id == invitations.c.organization_id)
        .outerjoin(parent, parent.c.id == organizations.c.parent_id)
        .where(mails.c.invitation_id == invitation_id, mails.c.state == "waiting", mails.c.code.is_not(None))
    )
    row = connection.execute(chosen).first()
    return None if row is None else OwedMail(*row)


def due(connection: sa.Connection, now: int) -> list[str]:
    """Return the invitations whose mail is to be tried now, longest due first."""
    rows = connection.execute(
        sa.select(mails.c.invitation_id)
        .where(mails.c.state == "waiting", mails.c.due_at <= now)
        .order_by(mails.c.due_at, mails.c.invitation_id)
    )
    return [str(row[0]) for row in rows]


def unsent(connection: sa.Connection) -> dict[str, int]:
    """Return how many mails wait and how many were refused."""
    chosen = sa.select(mails.c.state, sa.func.count()).where(mails.c.state.in_(("waiting", "refused")))
    found = {str(row[0]): int(row[1]) for row in connection.execute(chosen.group_by(mails.c.state))}
    return {"waiting": 0, "refused": 0} | found


def claim(connection: sa.Connection, invitation_id: str, now: int, *, until: int) -> bool:
    """Take a due mail for oneself until an instant, when it is due again; False when another was first."""
    taken = connection.execute(
        sa.update(mails)
        .where(mails.c.invitation_id == invitation_id, mails.c.state == "waiting", mails.c.due_at <= now)
        .values(due_at=until)
    )
    return taken.rowcount > 0


def settle_sent(connection: sa.Connection, invitation_id: str, now: int) -> None:
    """Record that a mail left; its code is forgotten."""
    _settle(connection, invitation_id, state="sent", code=None, failure=None)
    connection.execute(sa.update(invitations).where(invitations.c.id == invitation_id).values(sent_at=now))


def settle_failed(connection: sa.Connection, invitation_id: str, failure: str, *, due_at: int | None) -> None:
    """Record why a mail did not leave and when to try again; None: never, for it was refused."""
    again = {"state": "refused"} if due_at is None else {"due_at": due_at}
    _settle(connection, invitation_id, failure=failure, **again)


def hasten(connection: sa.Connection, now: int, invitation_id: str | None = None) -> list[str]:
    """Make what did not leave due now, refused mails included; return those invitations."""
    chosen = sa.true() if invitation_id is None else mails.c.invitation_id == invitation_id
    rows = connection.execute(
        sa.update(mails)
        .where(mails.c.state.in_(("waiting", "refused")), mails.c.code.is_not(None), chosen)
        .values(state="waiting", due_at=now)
        .returning(mails.c.invitation_id)
    )
    return sorted(str(row[0]) for row in rows)


def withdraw(connection: sa.Connection, invitation_id: str) -> None:
    """Never send a mail, or record that its invitation was taken back after it left."""
    changed = sa.update(mails).where(mails.c.invitation_id == invitation_id)
    connection.execute(changed.values(state="withdrawn", code=None))


def _settle(connection: sa.Connection, invitation_id: str, **values: object) -> None:
    # What was withdrawn meanwhile stays withdrawn.
    connection.execute(
        sa.update(mails)
        .where(mails.c.invitation_id == invitation_id, mails.c.state == "waiting")
        .values(attempts=mails.c.attempts + 1, **values)
    )
