"""The directory of organizations and of their parents (spec 2.2, 4.1)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from service import ids
from service.store.database import lock_subject
from service.store.schema import batches, first, found, organizations, runs

ENTITLEMENTS: Final = ("ServiceAPI", "CreateOrganizations")


@dataclass(frozen=True, slots=True)
class Organization:
    """A directory entry."""

    id: str
    name: str
    slug: str
    parent_id: str | None
    active: bool
    entitlements: tuple[str, ...]
    offer_code: str | None
    created_at: int
    day_usd: float | None = None
    """The most dollars that all its agents together may spend in a day (UTC); None for no limit."""
    day_tokens: int | None = None
    """The most tokens that all its agents together may use in a day (UTC); None for no limit."""


def create(
    connection: sa.Connection,
    *,
    name: str,
    now: int,
    slug: str | None = None,
    parent_id: str | None = None,
    entitlements: tuple[str, ...] = (),
    offer_code: str | None = None,
) -> Organization:
    """Add an organization; the slug defaults to one made from the name, and gets a suffix if it is taken."""
    new_id = ids.organization_id(now)
    wanted = slug or slug_of(name)
    lock_subject(connection, "organization", wanted)
    taken = connection.execute(sa.select(organizations.c.id).where(organizations.c.slug == wanted)).first()
    made = Organization(
        id=new_id,
        name=name,
        slug=f"{wanted}-{new_id[-8:].lower()}" if taken else wanted,
        parent_id=parent_id,
        active=True,
        entitlements=entitlements,
        offer_code=offer_code,
        created_at=now,
    )
    add(connection, [made])
    return made


def add(connection: sa.Connection, made: Sequence[Organization]) -> None:
    """Add organizations whose slugs are free."""
    if made:
        connection.execute(sa.insert(organizations), [asdict(one) for one in made])


def slug_of(name: str) -> str:
    """Return the slug that an organization with this name gets, unless it is taken."""
    return ids.slug(name) or "organization"


def by_id(connection: sa.Connection, organization_id: str) -> Organization | None:
    """Return the organization with an id."""
    return first(connection, Organization, organizations, organizations.c.id == organization_id)


def ids_of_all(connection: sa.Connection) -> list[str]:
    """Return the id of every organization."""
    return list(connection.execute(sa.select(organizations.c.id).order_by(organizations.c.id)).scalars())


def by_slug(connection: sa.Connection, slug: str) -> Organization | None:
    """Return the organization with a slug (upper or lower case) or an id, as an administrator types it."""
    typed = sa.or_(organizations.c.slug == slug.lower(), organizations.c.id == slug)
    return first(connection, Organization, organizations, typed)


def named(connection: sa.Connection, slugs: Sequence[str]) -> dict[str, Organization]:
    """Return the organizations with the given slugs or ids, keyed by both; like `by_slug`, but for many."""
    known: dict[str, Organization] = {}
    for some in batches(slugs):
        typed = sa.or_(organizations.c.slug.in_([slug.lower() for slug in some]), organizations.c.id.in_(some))
        for one in found(connection, Organization, organizations, typed):
            known |= {one.slug: one, one.id: one}
    return known


def of_run(connection: sa.Connection, run_id: str) -> Organization | None:
    """Return the organization to which a run belongs."""
    owner = sa.select(runs.c.organization_id).where(runs.c.id == run_id).scalar_subquery()
    return first(connection, Organization, organizations, organizations.c.id == owner)


def all_of(connection: sa.Connection) -> list[Organization]:
    """Return every organization, oldest first."""
    return found(connection, Organization, organizations, order=[organizations.c.created_at, organizations.c.id])


def change(connection: sa.Connection, organization_id: str, *, active: bool, entitlements: tuple[str, ...]) -> None:
    """Set whether an organization is active, and its entitlements."""
    mine = organizations.c.id == organization_id
    connection.execute(sa.update(organizations).where(mine).values(active=active, entitlements=entitlements))


def limit_day(connection: sa.Connection, organization_id: str, usd: float | None, tokens: int | None) -> None:
    """Set the most that all agents of an organization together may spend in a day; None for no limit."""
    mine = organizations.c.id == organization_id
    connection.execute(sa.update(organizations).where(mine).values(day_usd=usd, day_tokens=tokens))
