"""`runwarden notify`: test routes, list messages, and acknowledge them."""

from datetime import UTC, datetime
from typing import Final

import click

from app.api.network import Network
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import COUNT, CommandGroup, async_command
from app.cli.output import Column, facts
from app.engine.text import plural
from app.engine.times import exact_ago, rfc3339
from app.notify.channels import send
from app.profiles.settings import DEFAULT_ROUTE
from storage.records.alert import Delivery, Message
from storage.records.inbox import Mark

TONES: Final = {"delivered": "good", "failed": "bad", "expired": "bad"}


notify = CommandGroup("notify", help="Test notification routes, list messages, and acknowledge them.")


@notify.command("test")
@click.argument("route", default="default")
@async_command
async def test(invocation: Invocation, /, *, route: str) -> int:
    """Send a test notification over ROUTE, one of [notify.routes], or over the channels of [notify] itself."""
    settings = invocation.settings()
    names = [DEFAULT_ROUTE, *(entry.name for entry in settings.notify.routes)]
    if route not in names:
        raise command_error("not_found", f"There is no route {route!r}. There are: {', '.join(names)}.")
    now = datetime.now(UTC)
    text = "Sent by `runwarden notify test`"
    message = Message(route, "test:rule", "new", "warning", "Runwarden: this is a test", text, ())
    profile = invocation.profile(settings)
    if trouble := await send(settings.notify, Delivery(0, message, now), profile.name, Network.of(profile)):
        raise command_error("not_delivered", trouble, route=route)
    invocation.output.record({"route": route, "delivered": True}, [("delivered", route)])
    return Exit.DONE


@notify.command("log")
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of messages.")
@async_command
async def log(invocation: Invocation, /, *, limit: int) -> int:
    """List notification messages with their outcome, newest first."""
    async with invocation.state() as state:
        deliveries = await state.recent_deliveries(limit)
        now = state.clock()
    entries = [
        facts(delivery, "number made_at attempts outcome")
        | facts(delivery.message, "route phase level title count groups")
        | {"text": delivery.message.body, "error": delivery.error or None}
        for delivery in deliveries
    ]

    def outcome(row: Delivery) -> str:
        return row.outcome or (f"again after {plural(row.attempts, 'attempt')}" if row.attempts else "waiting")

    columns: tuple[Column[Delivery], ...] = (
        Column("number", lambda row: str(row.number), "number"),
        Column("when", lambda row: exact_ago(row.made_at, now), "made_at", lambda row: rfc3339(row.made_at)),
        Column("route", lambda row: row.message.route, "route"),
        Column("outcome", outcome, "outcome", tone=lambda row: TONES.get(row.outcome or "", "")),
        Column("title", lambda row: row.message.title, "title", flexible=True),
    )
    invocation.output.listing("deliveries", entries, columns, deliveries, empty="No messages yet.")
    return Exit.DONE


@notify.command("ack")
@click.argument("numbers", nargs=-1, required=True, type=COUNT, metavar="NUMBER...")
@async_command
async def ack(invocation: Invocation, /, *, numbers: tuple[int, ...]) -> int:
    """Acknowledge messages by the number in their text, so that they are not repeated."""
    async with invocation.state() as state:
        deliveries = {number: await state.delivery(number) for number in numbers}
        if missing := [number for number, delivery in deliveries.items() if delivery is None]:
            raise command_error("not_found", f"There is no message {missing[0]}. See: runwarden notify log")
        groups = [group for row in deliveries.values() if row is not None for group in row.message.groups]
        now = state.clock()
        await state.mark(dict.fromkeys(groups, Mark(done_until=now)), now)
    invocation.output.record({"groups": groups}, [("acknowledged", group) for group in groups])
    return Exit.DONE
