"""`offer`: partner and public offer codes."""

import click

from service.cli.output import Desk, administers
from service.entries import OfferEntry
from service.store import offers
from service.store.offers import KINDS, Offer


@click.group("offer")
def command() -> None:
    """Offer codes."""


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
    desk.show(entry.model_dump(), [f"{code}  {kind}{'  retired' if retired else ''}"])


@command.command("list")
@administers
def list_all(desk: Desk) -> None:
    """List offers."""
    with desk.read() as connection:
        found = offers.all_of(connection)
    documents = [{field: getattr(one, field) for field in Offer.__slots__} for one in found]
    desk.show({"offers": documents}, [f"{one.code}  {one.kind}{'  retired' if one.retired else ''}" for one in found])
