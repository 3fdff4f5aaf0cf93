"""The directory of organizations and of their parents (spec 2.2, 4.1), their offers, and their trials.

An organization signs up with an offer. Its trial starts with its first code host (spec 2.1, 3).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

import sqlalchemy as sa
from pydantic import ConfigDict, Field

from service import ids
from service.clock import Micros
from service.store.database import lock_subject
from service.store.rows import batches, record_of, records_of, replace_rows, update
from service.store.schema import offers, organizations, runs, trials

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
    created_at: Micros
    day_usd: float | None = None
    """The most dollars that all its agents together may spend in a day (UTC); None for no limit."""
    day_tokens: int | None = None
    """The most tokens that all its agents together may use in a day (UTC); None for no limit."""


def create(
    connection: sa.Connection,
    *,
    name: str,
    now: Micros,
    slug: str | None = None,
    parent_id: str | None = None,
    entitlements: tuple[str, ...] = (),
    offer_code: str | None = None,
) -> Organization:
    """Add an organization; the slug defaults to one made from the name, and gets a suffix if it is taken."""
    new_id, slug = f"org_{ids.ulid(now)}", slug or slug_of(name)
    lock_subject(connection, "organization", slug)
    if record_of(connection, Organization, organizations, slug=slug):
        slug = f"{slug}-{new_id[-8:].lower()}"
    created = Organization(
        new_id, name, slug, parent_id, active=True, entitlements=entitlements, offer_code=offer_code, created_at=now
    )
    add(connection, [created])
    return created


def add(connection: sa.Connection, created: Sequence[Organization]) -> None:
    """Add organizations whose slugs are free."""
    if created:
        connection.execute(sa.insert(organizations), [asdict(organization) for organization in created])


def slug_of(name: str) -> str:
    return ids.slug(name) or "organization"


def by_id(connection: sa.Connection, organization_id: str) -> Organization | None:
    return record_of(connection, Organization, organizations, id=organization_id)


def by_slug(connection: sa.Connection, slug: str) -> Organization | None:
    """Return the organization with a slug (upper or lower case) or an id, as an administrator types it."""
    return next(iter(by_slugs(connection, [slug]).values()), None)


def by_slugs(connection: sa.Connection, slugs: Sequence[str]) -> dict[str, Organization]:
    """Return the organizations with the given slugs or ids, keyed by both."""
    by_slug: dict[str, Organization] = {}
    for some in batches(slugs):
        typed = sa.or_(organizations.c.slug.in_([slug.lower() for slug in some]), organizations.c.id.in_(some))
        for organization in records_of(connection, Organization, organizations, typed):
            by_slug |= {organization.slug: organization, organization.id: organization}
    return by_slug


def of_run(connection: sa.Connection, run_id: str) -> Organization | None:
    owner = sa.select(runs.c.organization_id).where(runs.c.id == run_id).scalar_subquery()
    return record_of(connection, Organization, organizations, organizations.c.id == owner)


def all_of(connection: sa.Connection) -> list[Organization]:
    return records_of(connection, Organization, organizations, order=[organizations.c.created_at, organizations.c.id])


def change(connection: sa.Connection, organization_id: str, **values: object) -> None:
    update(connection, organizations, organizations.c.id == organization_id, **values)


OFFER_KINDS: Final = ("partner", "public")
_Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer; a retired one is still accepted at signup, but gives only the standard trial (spec 3)."""

    __pydantic_config__ = ConfigDict(extra="forbid", hide_input_in_errors=True)

    code: _Name
    kind: Literal["partner", "public"]
    retired: bool = False
    price: _Name | None = None
    """Free text; an offer whose price changed after signup no longer applies (spec 3)."""


def put_offer(connection: sa.Connection, offer: Offer) -> None:
    lock_subject(connection, "offer", offer.code)
    replace_rows(connection, offers, [asdict(offer)], [offers.c.code])


def offer_by_code(connection: sa.Connection, code: str) -> Offer | None:
    return record_of(connection, Offer, offers, code=code)


def all_offers(connection: sa.Connection) -> list[Offer]:
    return records_of(connection, Offer, offers, order=[offers.c.code])


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of an organization that signed up (spec 3)."""

    organization_id: str
    signup_code: str | None
    """The offer given at signup; None for the standard trial."""
    signup_price: str | None
    started_at: Micros | None
    """When the trial began; None until a code host is connected."""
    granted_code: str | None
    """The offer that the trial runs on; None for the standard trial, or before the start."""

    @property
    def state(self) -> str:
        """`waiting` before the first code host, then `standard` or `offer`."""
        if self.started_at is None:
            return "waiting"
        return "standard" if self.granted_code is None else "offer"


def sign_up(connection: sa.Connection, organization_id: str, code: str | None) -> None:
    """Record an organization's signup (spec 4.1, effect 4)."""
    offer = None if code is None else offer_by_code(connection, code)
    trial = Trial(organization_id, code, None if offer is None else offer.price, None, None)
    connection.execute(sa.insert(trials).values(asdict(trial)))


def trial_of(connection: sa.Connection, organization_id: str) -> Trial | None:
    """Return an organization's trial; None if the operator created the organization."""
    return record_of(connection, Trial, trials, organization_id=organization_id)


def start_trial(connection: sa.Connection, organization_id: str, now: Micros) -> None:
    """Start the trial if it has not begun; a retired, repriced or removed offer becomes the standard trial (spec 3)."""
    trial = trial_of(connection, organization_id)
    if trial is None or trial.started_at is not None:
        return
    offer = None if trial.signup_code is None else offer_by_code(connection, trial.signup_code)
    applies = offer is not None and not offer.retired and offer.kind == "partner" and offer.price == trial.signup_price
    waits = (trials.c.organization_id == organization_id, trials.c.started_at.is_(None))
    update(connection, trials, *waits, started_at=now, granted_code=trial.signup_code if applies else None)
