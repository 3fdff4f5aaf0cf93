"""`runwarden notify`: routes, what went over them, and acknowledging it."""

from datetime import UTC, datetime
from typing import Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import COUNT, CommandGroup, FactCommand, async_command
from app.cli.output import Column
from app.text import plural
from app.times import exact_ago, rfc3339
from storage.records.alert import Delivery, Message
from storage.records.inbox import Mark

TONES: Final = {"delivered": "good", "failed": "bad", "expired": "bad"}


@click.group(cls=CommandGroup)
def notify() -> None:
    """Try the routes of notifications, list what they told, and acknowledge it."""


@notify.command("test", cls=FactCommand)
@click.argument("route", default="default")
@async_command
async def test(invocation: Invocation, /, *, route: str) -> int:
    """Send a test notification over ROUTE, one of [notify.routes], or over the channels of [notify] itself."""
    import os

    from app.config.settings import DEFAULT_ROUTE
    from app.notify.delivery import send

    settings = invocation.settings()
    names = [DEFAULT_ROUTE, *(each.name for each in settings.notify.routes)]
    if route not in names:
        raise failed("not_found", f"There is no route {route!r}. There are: {', '.join(names)}.")
    now, text = datetime.now(UTC), "Sent by `runwarden notify test`"
    message = Message(route, "test:rule", "new", "warning", "Runwarden: this is a test", text, ())
    profile = invocation.profile(settings).name
    trouble = await send(settings.notify, Delivery(0, message, now, now), profile, os.environ)
    if trouble is not None:
        raise failed("not_delivered", trouble, route=route)
    invocation.output.record({"route": route, "delivered": True}, [("delivered", route)])
    return Exit.DONE


@notify.command("log", cls=FactCommand)
@click.option("--limit", type=COUNT, default=50, show_default=True, help="How many, the newest.")
@async_command
async def log(invocation: Invocation, /, *, limit: int) -> int:
    """List the messages that were made, newest first, and what became of each."""
    async with invocation.state() as state:
        found = await state.recent_deliveries(limit)
        now = state.clock()
    columns: tuple[Column[Delivery], ...] = (
        Column("number", lambda each: str(each.number), "number"),
        Column("when", lambda each: exact_ago(each.made_at, now), "made_at", lambda each: rfc3339(each.made_at)),
        Column("route", lambda each: each.message.route, "route"),
        Column("outcome", _outcome, "outcome", tone=lambda each: TONES.get(each.outcome or "", "")),
        Column("title", lambda each: each.message.title, "title", flexible=True),
    )
    invocation.output.listing("deliveries", [_document(each) for each in found], found, columns, empty="Nothing yet.")
    return Exit.DONE


@notify.command("ack", cls=FactCommand)
@click.argument("numbers", nargs=-1, required=True, type=COUNT, metavar="NUMBER...")
@async_command
async def ack(invocation: Invocation, /, *, numbers: tuple[int, ...]) -> int:
    """Acknowledge messages by the number in their text: they are not repeated."""
    async with invocation.state() as state:
        found = {number: await state.delivery(number) for number in numbers}
        if missing := [number for number, each in found.items() if each is None]:
            raise failed("not_found", f"There is no message {missing[0]}. See: runwarden notify log")
        groups = [group for each in found.values() if each is not None for group in each.message.groups]
        now = state.clock()
        await state.mark(dict.fromkeys(groups, Mark(done_until=now)), now)
    invocation.output.record({"groups": groups}, [("acknowledged", group) for group in groups])
    return Exit.DONE


def _outcome(each: Delivery) -> str:
    return each.outcome or (f"again after {plural(each.attempts, 'attempt')}" if each.attempts else "waiting")


def _document(each: Delivery) -> dict[str, object]:
    message = each.message
    return {
        "number": each.number,
        "route": message.route,
        "phase": message.phase,
        "level": message.level,
        "title": message.title,
        "count": message.count,
        "text": message.body,
        "groups": list(message.groups),
        "made_at": rfc3339(each.made_at),
        "attempts": each.attempts,
        "outcome": each.outcome,
        "error": each.error or None,
    }
