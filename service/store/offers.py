"""Offer codes: partner codes are accepted, public signup codes are not (spec 2.1)."""

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from service.store.schema import offers

KINDS: Final = ("partner", "public")


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer; a retired one is still accepted, and falls back to the standard trial later (spec 3)."""

    code: str
    kind: str
    retired: bool = False
    price: str | None = None
    """In the operator's words; an offer whose price changed after signup no longer holds (spec 3)."""


def put(connection: sa.Connection, offer: Offer) -> None:
    """Add an offer or replace the one with its code."""
    connection.execute(sa.delete(offers).where(offers.c.code == offer.code))
    connection.execute(sa.insert(offers).values({field: getattr(offer, field) for field in Offer.__slots__}))


def by_code(connection: sa.Connection, code: str) -> Offer | None:
    """Return the offer with a code."""
    row = connection.execute(_select().where(offers.c.code == code)).first()
    return None if row is None else Offer(*row)


def all_of(connection: sa.Connection) -> list[Offer]:
    """Return every offer."""
    return [Offer(*row) for row in connection.execute(_select().order_by(offers.c.code))]


def _select() -> sa.Select[tuple[Any, ...]]:
    return sa.select(*(offers.c[field] for field in Offer.__slots__))
