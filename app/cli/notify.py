"""`runwarden notify`: routes, what went over them, acknowledging it, and silences."""

from datetime import UTC, datetime
from typing import Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import COUNT, CommandGroup, FactCommand, async_command
from app.cli.output.table import Column
from app.text import plural
from app.times import exact_ago, parse_duration, rfc3339
from storage.records.alert import Delivery, Message, Silence
from storage.records.inbox import Mark

TONES: Final = {"delivered": "good", "failed": "bad", "expired": "bad"}


@click.group(cls=CommandGroup)
def notify() -> None:
    """Try the routes of notifications, acknowledge what they told, and silence it."""


@notify.command("test", cls=FactCommand)
@click.argument("route", default="default")
@async_command
async def test(invocation: Invocation, /, *, route: str) -> int:
    """Send a test notification over ROUTE, one of [notify.routes], or over the channels of [notify] itself."""
    import os

    from app.config.notify import DEFAULT_ROUTE
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
    """Acknowledge messages by the number in their text: they are neither repeated nor escalated."""
    async with invocation.state() as state:
        found = {number: await state.delivery(number) for number in numbers}
        if missing := [number for number, each in found.items() if each is None]:
            raise failed("not_found", f"There is no message {missing[0]}. See: runwarden notify log")
        groups = [group for each in found.values() if each is not None for group in each.message.groups]
        now = state.clock()
        await state.mark(dict.fromkeys(groups, Mark(done_until=now)), now)
    invocation.output.record({"groups": groups}, [("acknowledged", group) for group in groups])
    return Exit.DONE


@notify.group("silences", cls=CommandGroup)
def silences() -> None:
    """Keep quiet about something for a while; its end is told if its beginning was."""


@silences.command("list", cls=FactCommand)
@async_command
async def list_silences(invocation: Invocation, /) -> int:
    """List the silences in force."""
    async with invocation.state() as state:
        now = state.clock()
        found = await state.active_silences(now)
    columns: tuple[Column[Silence], ...] = (
        Column("id", lambda each: str(each.silence_id), "id"),
        Column("silences", lambda each: each.pattern, "pattern"),
        Column("until", lambda each: rfc3339(each.until) or "", "until"),
        Column("reason", lambda each: each.reason, "reason", flexible=True),
    )
    invocation.output.listing("silences", [_silence(each) for each in found], found, columns, empty="No silences.")
    return Exit.DONE


@silences.command("add", cls=FactCommand)
@click.argument("pattern")
@click.option("--for", "length", default="2h", show_default=True, metavar="TIME", help="For how long, as in 2h or 1d.")
@click.option("--reason", default="", help="Why, for the others.")
@async_command
async def add_silence(invocation: Invocation, /, *, pattern: str, length: str, reason: str) -> int:
    """Silence what matches PATTERN, a glob over the inbox's keys such as 'failed:acme/*' or 'host:github'."""
    try:
        span = parse_duration(length)
    except ValueError as error:
        raise failed("usage", str(error), field="for") from error
    async with invocation.state() as state:
        now = state.clock()
        made = await state.add_silence(pattern, now + span, reason, now)
    invocation.output.record(_silence(made), [("silenced", pattern), ("until", rfc3339(made.until) or "")])
    return Exit.DONE


@silences.command("end", cls=FactCommand)
@click.argument("number", type=COUNT)
@async_command
async def end_silence(invocation: Invocation, /, *, number: int) -> int:
    """End a silence now: what is still so is told."""
    async with invocation.state() as state:
        if not await state.end_silence(number, state.clock()):
            raise failed("not_found", f"No silence {number} is in force. See: runwarden notify silences list")
    invocation.output.record({"id": number, "ended": True}, [("ended", str(number))])
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


def _silence(each: Silence) -> dict[str, object]:
    return {
        "id": each.silence_id,
        "pattern": each.pattern,
        "until": rfc3339(each.until),
        "reason": each.reason,
        "made_at": rfc3339(each.made_at),
    }
