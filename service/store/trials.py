"""Offers with which organizations sign up, and trials, which start with the first code host (spec 2.1, 3)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

import sqlalchemy as sa
from pydantic import ConfigDict, Field

from service.store.database import lock_subject
from service.store.schema import by_owner, first, found, offers, replace_rows, trials

KINDS: Final = ("partner", "public")
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
    """Add an offer or replace the one with its code."""
    lock_subject(connection, "offer", offer.code)
    replace_rows(connection, offers, [asdict(offer)], [offers.c.code])


def offer_by_code(connection: sa.Connection, code: str) -> Offer | None:
    """Return the offer with a code."""
    return first(connection, Offer, offers, offers.c.code == code)


def all_offers(connection: sa.Connection) -> list[Offer]:
    """Return every offer."""
    return found(connection, Offer, offers, order=[offers.c.code])


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of an organization that signed up (spec 3)."""

    organization_id: str
    signup_code: str | None
    """The offer given at signup; None for the standard trial."""
    signup_price: str | None
    """The offer's price at signup."""
    started_at: int | None
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


def of(connection: sa.Connection, organization_id: str) -> Trial | None:
    """Return an organization's trial; None if the operator created the organization."""
    return first(connection, Trial, trials, trials.c.organization_id == organization_id)


def of_all(connection: sa.Connection, organization_ids: Sequence[str]) -> list[Trial]:
    """Return the trials of the organizations that have one."""
    return [one for (one,) in by_owner(connection, Trial, trials, organization_ids).values()]


def activate(connection: sa.Connection, organization_id: str, now: int) -> Trial | None:
    """Start the trial if it has not begun; a retired, repriced or removed offer becomes the standard trial (spec 3)."""
    trial = of(connection, organization_id)
    if trial is None or trial.started_at is not None:
        return trial
    offer = None if trial.signup_code is None else offer_by_code(connection, trial.signup_code)
    applies = offer is not None and not offer.retired and offer.kind == "partner" and offer.price == trial.signup_price
    connection.execute(
        sa.update(trials)
        .where(trials.c.organization_id == organization_id, trials.c.started_at.is_(None))
        .values(started_at=now, granted_code=trial.signup_code if applies else None)
    )
    return of(connection, organization_id)
