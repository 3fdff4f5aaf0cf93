"""Sessions of the web page, and the members of organizations who may sign in to it."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import DAY_MICROS, SECOND_MICROS, Micros
from service.errors import ServiceError
from service.settings import Role
from service.store import invitations
from service.store.database import lock_subject
from service.store.rows import delete, insert_new, record_of, records_of, update
from service.store.schema import members, sessions
from service.store.tokens import SCOPES, Scope

ROLES: Final[Mapping[str, tuple[Scope, ...]]] = {
    "viewer": ("runs:read",),
    "developer": ("runs:read", "runs:write"),
    "admin": SCOPES,
}
TASKS: Final = {"viewer": "view", "developer": "work in", "admin": "administer"}
"""The purpose of an invitation to a role."""
IDLE_MICROS: Final = 12 * 3600 * SECOND_MICROS
LIFE_MICROS: Final = 7 * DAY_MICROS
SEEN_MICROS: Final = 60 * SECOND_MICROS
"""The precision of the last use: otherwise each request would write."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session: of a token, of a member, or, with neither, of the operator."""

    digest: str
    organization_id: str | None
    token_id: str | None
    member_id: str | None
    opened_at: Micros
    seen_at: Micros


@dataclass(frozen=True, slots=True)
class Member:
    """A user who may sign in with an e-mail address."""

    id: str
    organization_id: str
    email: str
    role: Role
    added_at: Micros


class LastAdminError(ServiceError):
    """Without this member, nobody could change members and tokens."""


def begin(
    connection: sa.Connection,
    now: Micros,
    *,
    organization_id: str | None = None,
    token_id: str | None = None,
    member_id: str | None = None,
    secret: str = "",
) -> str:
    """Open a session and return the browser's cookie value; expired sessions are deleted.

    `secret` is also needed to find the session again, so the session stops working when the secret changes.
    """
    is_expired = (sessions.c.opened_at <= now - LIFE_MICROS) | (sessions.c.seen_at <= now - IDLE_MICROS)
    delete(connection, sessions, is_expired)
    value = secrets.token_urlsafe(32)
    session = Session(ids.digest(value + secret), organization_id, token_id, member_id, now, now)
    connection.execute(sa.insert(sessions).values(asdict(session)))
    return value


def by_value(connection: sa.Connection, value: str, now: Micros, secret: str = "") -> Session | None:
    """Return a session that was used within twelve hours and opened within seven days."""
    session = record_of(connection, Session, sessions, digest=ids.digest(value + secret))
    if session is None or now - session.seen_at >= IDLE_MICROS or now - session.opened_at >= LIFE_MICROS:
        return None
    return session


def note_use(connection: sa.Connection, session: Session, now: Micros) -> None:
    update(connection, sessions, sessions.c.digest == session.digest, seen_at=now)


def end(connection: sa.Connection, digest: str) -> None:
    delete(connection, sessions, digest=digest)


def member(connection: sa.Connection, member_id: str) -> Member | None:
    return record_of(connection, Member, members, id=member_id)


def members_of(connection: sa.Connection, organization_id: str) -> list[Member]:
    return records_of(connection, Member, members, organization_id=organization_id, order=[members.c.email])


def memberships(connection: sa.Connection, emails: Iterable[str]) -> list[Member]:
    return records_of(connection, Member, members, members.c.email.in_([email.lower() for email in emails]))


def add_member(
    connection: sa.Connection, organization_id: str, email: str, now: Micros, role: Role = "admin"
) -> Member:
    """Return the member with an address, adding it with a role if the organization does not have it yet."""
    added = Member(f"mem_{ids.ulid(now)}", organization_id, email.lower(), role, now)
    insert_new(connection, members, asdict(added))
    return records_of(connection, Member, members, organization_id=organization_id, email=added.email)[0]


def put_member(connection: sa.Connection, organization_id: str, email: str, now: Micros, role: Role) -> Member:
    """Add a member with a role, or give the one with this address that role, as `set_role` does."""
    lock_subject(connection, "members", organization_id)
    present = add_member(connection, organization_id, email, now, role)
    set_role(connection, organization_id, present.id, role, now)
    return replace(present, role=role)


def set_role(connection: sa.Connection, organization_id: str, member_id: str, role: Role | None, now: Micros) -> bool:
    """Give a member a role, which open sessions have at once, or remove them with their sessions (None).

    Their open invitations are withdrawn. False if there is no such member; a `LastAdminError` if no admin would stay.
    """
    lock_subject(connection, "members", organization_id)
    others = {row.id: row for row in members_of(connection, organization_id)}
    changed = others.pop(member_id, None)
    if changed is None:
        return False
    has_admin = role == "admin" or any(other.role == "admin" for other in others.values())
    if changed.role == "admin" and not has_admin and (role or others):
        raise LastAdminError("this is the last admin: make another member an admin first")
    # None of these invitations can restore an older role.
    invitations.withdraw_all(connection, organization_id, changed.email, now)
    if role:
        update(connection, members, members.c.id == member_id, role=role)
    else:
        delete(connection, members, id=member_id)
    return True
