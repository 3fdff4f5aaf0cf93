"""`offer`: partner and public offer codes."""

from dataclasses import replace
from typing import Any

import click

from service.cli.output import Desk, administers
from service.entries import OfferEntry
from service.setup import SetupError
from service.store import offers
from service.store.offers import KINDS, Offer


@click.group("offer")
def command() -> None:
    """Offer codes."""


def _document(one: Offer) -> dict[str, Any]:
    return {field: getattr(one, field) for field in Offer.__slots__}


def _line(one: Offer | OfferEntry) -> str:
    return "  ".join([one.code, one.kind, *(["retired"] if one.retired else []), *([one.price] if one.price else [])])


@command.command("add")
@click.argument("code")
@click.option("--kind", type=click.Choice(KINDS), required=True)
@click.option("--retired", is_flag=True, help="Still accepted; the trial will be the standard one.")
@click.option("--price", help="In your words; who signed up at another one gets the standard trial.")
@administers
def add(desk: Desk, code: str, *, kind: str, retired: bool, price: str | None) -> None:
    """Add an offer, or change the one with its code."""
    entry = OfferEntry.model_validate({"code": code, "kind": kind, "retired": retired, "price": price})
    with desk.write(create=True) as connection:
        offers.put(connection, Offer(entry.code, entry.kind, entry.retired, entry.price))
    desk.show(entry.model_dump(), [_line(entry)])


@command.command("retire")
@click.argument("code")
@administers
def retire(desk: Desk, code: str) -> None:
    """Retire an offer: still accepted at signup, but the trial will be the standard one."""
    with desk.write() as connection:
        found = offers.by_code(connection, code)
        if found is None:
            raise SetupError(f"there is no offer {code!r}; list them with: runwarden service offer list")
        retired = replace(found, retired=True)
        offers.put(connection, retired)
    desk.show(_document(retired), [_line(retired)])


@command.command("list")
@administers
def list_all(desk: Desk) -> None:
    """List offers."""
    with desk.read() as connection:
        found = offers.all_of(connection)
    desk.show({"offers": [_document(one) for one in found]}, [_line(one) for one in found])
