"""Sessions of the web page, and the members of organizations who may sign in to it."""

import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, SECOND_MICROS
from service.store.database import insert_new
from service.store.schema import first, found, members, sessions

IDLE_MICROS: Final = 12 * 3600 * SECOND_MICROS
LIFE_MICROS: Final = 7 * DAY_MICROS
_SEEN_MICROS: Final = 60 * SECOND_MICROS
"""The precision of the last use: otherwise each request would write."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session: of a token, of a member, or, with neither, of the operator."""

    digest: str
    organization_id: str | None
    token_id: str | None
    member_id: str | None
    opened_at: int
    seen_at: int


@dataclass(frozen=True, slots=True)
class Member:
    """A user who may sign in with an e-mail address."""

    id: str
    organization_id: str
    email: str
    added_at: int


def begin(
    connection: sa.Connection,
    now: int,
    *,
    organization_id: str | None = None,
    token_id: str | None = None,
    member_id: str | None = None,
    secret: str = "",
) -> str:
    """Open a session and return the browser's cookie value; expired sessions are deleted.

    `secret` is also needed to find the session again, so the session stops working when the secret changes.
    """
    expired = (sessions.c.opened_at <= now - LIFE_MICROS, sessions.c.seen_at <= now - IDLE_MICROS)
    connection.execute(sa.delete(sessions).where(sa.or_(*expired)))
    value = secrets.token_urlsafe(32)
    session = Session(ids.digest(value + secret), organization_id, token_id, member_id, now, now)
    connection.execute(sa.insert(sessions).values(asdict(session)))
    return value


def by_value(connection: sa.Connection, value: str, now: int, secret: str = "") -> Session | None:
    """Return a session that was used within twelve hours and opened within seven days."""
    session = first(connection, Session, sessions, sessions.c.digest == ids.digest(value + secret))
    if session is None or now - session.seen_at >= IDLE_MICROS or now - session.opened_at >= LIFE_MICROS:
        return None
    return session


def is_due(session: Session, now: int) -> bool:
    """Whether the session's use has to be noted."""
    return now - session.seen_at >= _SEEN_MICROS


def note_use(connection: sa.Connection, session: Session, now: int) -> None:
    """Note that a session was used."""
    connection.execute(sa.update(sessions).where(sessions.c.digest == session.digest).values(seen_at=now))


def end(connection: sa.Connection, digest: str) -> None:
    """End a session."""
    connection.execute(sa.delete(sessions).where(sessions.c.digest == digest))


def member(connection: sa.Connection, member_id: str) -> Member | None:
    """Return a member."""
    return first(connection, Member, members, members.c.id == member_id)


def members_of(connection: sa.Connection, organization_id: str) -> list[Member]:
    """Return an organization's members, by address."""
    return found(connection, Member, members, members.c.organization_id == organization_id, order=[members.c.email])


def memberships(connection: sa.Connection, emails: Iterable[str]) -> list[Member]:
    """Return the members with the given addresses, in all organizations."""
    return found(connection, Member, members, members.c.email.in_([one.lower() for one in emails]))


def add_member(connection: sa.Connection, organization_id: str, email: str, now: int) -> Member:
    """Return the member with an address, adding it if the organization does not have it yet."""
    row = {"id": f"mem_{ids.ulid(now)}", "organization_id": organization_id, "email": email.lower(), "added_at": now}
    insert_new(connection, members, row)
    same = (members.c.organization_id == organization_id, members.c.email == email.lower())
    return found(connection, Member, members, *same)[0]


def remove_member(connection: sa.Connection, organization_id: str, member_id: str) -> bool:
    """Remove a member and their open sessions; False if there is none."""
    same = (members.c.organization_id == organization_id, members.c.id == member_id)
    return connection.execute(sa.delete(members).where(*same)).rowcount > 0
