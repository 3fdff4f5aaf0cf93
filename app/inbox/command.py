"""`runwarden inbox` and `runwarden notify`: open items, and the notifications sent about them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from app.actions.command_many import retry_options, retry_runs
from app.api.network import Network
from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import COUNT, CommandGroup, FactCommand, async_command, reading
from app.cli.output import Column, facts
from app.engine.engine import Engine
from app.engine.text import plural
from app.engine.times import exact_ago, parse_duration, rfc3339
from app.inbox.inbox import Inbox
from app.notify.channels import send
from app.profiles.settings import DEFAULT_ROUTE
from storage.errors import StorageError
from storage.records.alert import Delivery, Message
from storage.records.inbox import NO_TIME, RETRIED, InboxItem, Mark

TONES: Final = {"critical": "bad", "decide": "warn", "delivered": "good", "failed": "bad", "expired": "bad"}
"""The tones, by an item's severity or a message's outcome."""
ALL: Final = "all"
KEYS: Final = click.argument("keys", nargs=-1, required=True, metavar="KEY...")


class _ListingGroup(CommandGroup):
    """Lists the items if no subcommand is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Completion needs the names of all commands.
        is_named = ctx.resilient_parsing or any(arg in self.commands or arg in ctx.help_option_names for arg in args)
        return super().parse_args(ctx, args if is_named else ["list", *args])


@click.group(cls=_ListingGroup, no_args_is_help=False)
def inbox() -> None:
    """List open items, and mark them as done."""


@inbox.command("list", cls=FactCommand)
@click.option("--all", "with_done", is_flag=True, help="Include items that are done, snoozed or muted.")
@async_command
async def list_items(invocation: Invocation, /, *, with_done: bool) -> int:
    """List open items, the most severe first. Changes nothing, and does not contact the service."""
    async with invocation.engine(needs_token=False) as engine:
        items = await Inbox.of(engine).items(with_done=with_done)
        now, state = engine.clock(), engine.state
        polled = {link.subject: link.last_ok_at for link in await engine.cache.links()}
        coverage = await engine.cache.coverage()
    problem = ""
    if isinstance(state, StorageError) and not with_done:
        problem = f"Marks unknown: items that are done are listed too. {state}"
    entries = [
        facts(item, "key kind title severity count choices")
        | {"at": None if item.at == NO_TIME else rfc3339(item.at), "back": item.back or None, "cure": item.cure or None}
        | {"runs": list(item.run_ids), "by": item.by or None}
        for item in items
    ]
    columns: tuple[Column[InboxItem], ...] = (
        Column("severity", lambda item: item.severity, "severity", tone=lambda item: TONES.get(item.severity, "")),
        Column("kind", lambda item: item.kind, "kind", tone=lambda item: TONES.get(item.severity, "")),
        Column("what", lambda item: item.title, "title", flexible=True),
        Column("when", lambda item: "" if item.at == NO_TIME else exact_ago(item.at, now), "at"),
        Column("to do", lambda item: item.cure, "cure", flexible=True),
        Column("key", lambda item: item.key, "key"),
    )
    more = {
        "as_of": rfc3339(coverage.as_of or polled.get("runs")),
        "complete_since": rfc3339(coverage.complete_since) if coverage.as_of else None,
        "health_as_of": rfc3339(polled.get("health")),
        **({"marks": "unknown"} if problem else {}),
    }
    invocation.output.note(problem)
    invocation.output.listing("items", entries, columns, items, more=more, empty="The inbox is empty.")
    return Exit.DONE


@inbox.command("done", cls=FactCommand)
@KEYS
@async_command
async def done(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Mark items as done; `all`: all items listed now. Later events bring them back."""
    return await _mark(invocation, keys, lambda box, items: box.done(items))


@inbox.command("retry", cls=FactCommand)
@KEYS
@retry_options
@async_command
async def retry(invocation: Invocation, /, *, keys: tuple[str, ...], **given: Any) -> int:
    """Retry the failed runs of items, as `runs retry` does: of an outage, all runs that it broke."""

    async def named(engine: Engine) -> list[str]:
        items = _named(await Inbox.of(engine).items(), keys)
        if run_ids := [run_id for item in items if item.kind in RETRIED for run_id in item.run_ids]:
            return run_ids
        raise failed("not_found", "Nothing was sent: these items have no failed runs.")

    return await retry_runs(invocation, named, **given)


@inbox.command("snooze", cls=FactCommand)
@KEYS
@click.option(
    "--for",
    "length",
    callback=reading(parse_duration),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="For how long, as in 2h or 1d.",
)
@async_command
async def snooze(invocation: Invocation, /, *, keys: tuple[str, ...], length: timedelta) -> int:
    """Snooze items for a while; earlier events bring them back sooner."""
    return await _mark(invocation, keys, lambda box, items: box.snooze(items, box.engine.clock() + length))


@inbox.command("mute", cls=FactCommand)
@KEYS
@async_command
async def mute(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Hide items permanently, even if more events follow."""
    return await _mark(invocation, keys, lambda box, items: box.mute(items))


@inbox.command("undo", cls=FactCommand)
@async_command
async def undo(invocation: Invocation, /) -> int:
    """Undo the last `done`, `snooze` or `mute`; run it again to undo the one before."""
    async with invocation.engine(needs_token=False) as engine:
        keys = await Inbox.of(engine).undo()
    invocation.output.record({"keys": list(keys)}, [("as before", key) for key in keys] or [("unchanged", "nothing")])
    return Exit.DONE


async def _mark(
    invocation: Invocation, keys: Sequence[str], mark: Callable[[Inbox, list[InboxItem]], Awaitable[None]]
) -> int:
    async with invocation.engine(needs_token=False) as engine:
        box = Inbox.of(engine)
        items = _named(await box.items(), keys)
        await mark(box, items)
    marked = [item.key for item in items]
    invocation.output.record({"keys": marked}, [("marked", key) for key in marked] or [("unchanged", "nothing")])
    return Exit.DONE


def _named(items: Sequence[InboxItem], keys: Sequence[str]) -> list[InboxItem]:
    """The items of these keys, each once; all, if that is the only key."""
    by_key = {item.key: item for item in items}
    chosen = list(by_key) if list(keys) == [ALL] else list(dict.fromkeys(keys))
    if missing := [key for key in chosen if key not in by_key]:
        raise failed("not_found", f"There is no item {missing[0]!r}. See: runwarden inbox list")
    return [by_key[key] for key in chosen]


@click.group(cls=CommandGroup)
def notify() -> None:
    """Test notification routes, list messages, and acknowledge them."""


@notify.command("test", cls=FactCommand)
@click.argument("route", default="default")
@async_command
async def test(invocation: Invocation, /, *, route: str) -> int:
    """Send a test notification over ROUTE, one of [notify.routes], or over the channels of [notify] itself."""
    settings = invocation.settings()
    names = [DEFAULT_ROUTE, *(each.name for each in settings.notify.routes)]
    if route not in names:
        raise failed("not_found", f"There is no route {route!r}. There are: {', '.join(names)}.")
    now, text = datetime.now(UTC), "Sent by `runwarden notify test`"
    message = Message(route, "test:rule", "new", "warning", "Runwarden: this is a test", text, ())
    profile = invocation.profile(settings)
    trouble = await send(settings.notify, Delivery(0, message, now), profile.name, Network.of(profile))
    if trouble is not None:
        raise failed("not_delivered", trouble, route=route)
    invocation.output.record({"route": route, "delivered": True}, [("delivered", route)])
    return Exit.DONE


@notify.command("log", cls=FactCommand)
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of messages.")
@async_command
async def log(invocation: Invocation, /, *, limit: int) -> int:
    """List notification messages with their outcome, newest first."""
    async with invocation.state() as state:
        deliveries = await state.recent_deliveries(limit)
        now = state.clock()
    entries = [
        facts(each, "number made_at attempts outcome")
        | facts(each.message, "route phase level title count groups")
        | {"text": each.message.body, "error": each.error or None}
        for each in deliveries
    ]

    def outcome(each: Delivery) -> str:
        return each.outcome or (f"again after {plural(each.attempts, 'attempt')}" if each.attempts else "waiting")

    columns: tuple[Column[Delivery], ...] = (
        Column("number", lambda each: str(each.number), "number"),
        Column("when", lambda each: exact_ago(each.made_at, now), "made_at", lambda each: rfc3339(each.made_at)),
        Column("route", lambda each: each.message.route, "route"),
        Column("outcome", outcome, "outcome", tone=lambda each: TONES.get(each.outcome or "", "")),
        Column("title", lambda each: each.message.title, "title", flexible=True),
    )
    invocation.output.listing("deliveries", entries, columns, deliveries, empty="No messages yet.")
    return Exit.DONE


@notify.command("ack", cls=FactCommand)
@click.argument("numbers", nargs=-1, required=True, type=COUNT, metavar="NUMBER...")
@async_command
async def ack(invocation: Invocation, /, *, numbers: tuple[int, ...]) -> int:
    """Acknowledge messages by the number in their text, so that they are not repeated."""
    async with invocation.state() as state:
        deliveries = {number: await state.delivery(number) for number in numbers}
        if missing := [number for number, each in deliveries.items() if each is None]:
            raise failed("not_found", f"There is no message {missing[0]}. See: runwarden notify log")
        groups = [group for each in deliveries.values() if each is not None for group in each.message.groups]
        now = state.clock()
        await state.mark(dict.fromkeys(groups, Mark(done_until=now)), now)
    invocation.output.record({"groups": groups}, [("acknowledged", group) for group in groups])
    return Exit.DONE
