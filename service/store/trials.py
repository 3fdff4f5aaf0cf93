"""Trials: one starts when an organization connects its first code host, on its offer's terms if they still hold."""

from dataclasses import dataclass

import sqlalchemy as sa

from service.store import offers
from service.store.schema import trials


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of an organization that signed up (spec 3)."""

    organization_id: str
    signup_code: str | None
    """The offer given at signup; None: the standard trial was asked for."""
    signup_price: str | None
    """That offer's price as it stood at signup."""
    started_at: int | None
    """None: no code host is connected yet."""
    granted_code: str | None
    """The offer that the trial runs on; None: the standard trial, or it has not started."""

    @property
    def state(self) -> str:
        """`waiting` before the first code host, then `standard` or `offer`."""
        if self.started_at is None:
            return "waiting"
        return "standard" if self.granted_code is None else "offer"


def sign_up(connection: sa.Connection, organization_id: str, code: str | None) -> None:
    """Record what an organization signed up for (spec 4.1, effect 4)."""
    offer = None if code is None else offers.by_code(connection, code)
    made = Trial(organization_id, code, None if offer is None else offer.price, None, None)
    connection.execute(sa.insert(trials).values({field: getattr(made, field) for field in Trial.__slots__}))


def of(connection: sa.Connection, organization_id: str) -> Trial | None:
    """Return an organization's trial; None for an organization that an operator made."""
    columns = [trials.c[field] for field in Trial.__slots__]
    row = connection.execute(sa.select(*columns).where(trials.c.organization_id == organization_id)).first()
    return None if row is None else Trial(*row)


def activate(connection: sa.Connection, organization_id: str, now: int) -> Trial | None:
    """Start the trial if it has not begun; a retired, repriced or removed offer becomes the standard trial (spec 3)."""
    trial = of(connection, organization_id)
    if trial is None or trial.started_at is not None:
        return trial
    offer = None if trial.signup_code is None else offers.by_code(connection, trial.signup_code)
    holds = offer is not None and not offer.retired and offer.kind == "partner" and offer.price == trial.signup_price
    connection.execute(
        sa.update(trials)
        .where(trials.c.organization_id == organization_id, trials.c.started_at.is_(None))
        .values(started_at=now, granted_code=trial.signup_code if holds else None)
    )
    return of(connection, organization_id)
