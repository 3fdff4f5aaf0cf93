"""`runwarden inbox`: what happened and is not dealt with yet."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Column
from app.times import exact_ago, parse_duration, rfc3339
from storage.records.inbox import NO_TIME, InboxItem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from app.automations.inbox import Inbox

    Marking = Callable[[Inbox, list[InboxItem]], Awaitable[None]]

TONES: Final = {"critical": "bad", "decide": "warn", "look": ""}
ALL: Final = "all"


class _ListingGroup(CommandGroup):
    """Lists the items if no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Completion needs the names of all commands.
        is_named = ctx.resilient_parsing or any(arg in self.commands or arg in ctx.help_option_names for arg in args)
        return super().parse_args(ctx, args if is_named else ["list", *args])


@click.group(cls=_ListingGroup, no_args_is_help=False)
def inbox() -> None:
    """List what happened and is not dealt with, and say that it is."""


@inbox.command("list", cls=FactCommand)
@click.option("--all", "with_done", is_flag=True, help="Also what is done, snoozed or muted.")
@async_command
async def list_items(invocation: Invocation, /, *, with_done: bool) -> int:
    """List what is not dealt with, the most severe first. Changes nothing, and does not contact the service."""
    async with _opened(invocation) as box:
        items = await box.items(with_done=with_done)
        now = box.engine.clock()
    columns: tuple[Column[InboxItem], ...] = (
        Column("severity", lambda item: item.severity, "severity", tone=lambda item: TONES[item.severity]),
        Column("kind", lambda item: item.kind, "kind", tone=lambda item: TONES[item.severity]),
        Column("what", lambda item: item.title, "title", flexible=True),
        Column("when", lambda item: "" if item.at == NO_TIME else exact_ago(item.at, now), "at"),
        Column("to do", lambda item: item.cure, "cure", flexible=True),
        Column("key", lambda item: item.key, "key"),
    )
    entries = [_document(item) for item in items]
    invocation.output.listing("items", entries, items, columns, empty="Nothing waits for you.")
    return Exit.DONE


@inbox.command("done", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@async_command
async def done(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Say that items are dealt with (`all`: those listed now); what happens later brings them back."""
    return await _mark(invocation, keys, lambda box, items: box.done(items))


@inbox.command("snooze", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--for", "length", default="1h", show_default=True, metavar="TIME", help="For how long, as in 2h or 1d.")
@async_command
async def snooze(invocation: Invocation, /, *, keys: tuple[str, ...], length: str) -> int:
    """Put items off for a while; what happens sooner brings them back."""
    try:
        snoozed_for = parse_duration(length)
    except ValueError as error:
        raise failed("usage", str(error), field="for") from error
    return await _mark(invocation, keys, lambda box, items: box.snooze(items, box.engine.clock() + snoozed_for))


@inbox.command("mute", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@async_command
async def mute(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Take items out for good, whatever happens later."""
    return await _mark(invocation, keys, lambda box, items: box.mute(items))


@inbox.command("undo", cls=FactCommand)
@async_command
async def undo(invocation: Invocation, /) -> int:
    """Undo the last `done`, `snooze` or `mute`; used again, undo the one before it."""
    async with _opened(invocation) as box:
        keys = await box.undo()
    invocation.output.record({"keys": list(keys)}, [("as before", key) for key in keys] or [("unchanged", "nothing")])
    return Exit.DONE


@asynccontextmanager
async def _opened(invocation: Invocation) -> "AsyncIterator[Inbox]":
    from app.automations.inbox import Inbox

    async with invocation.engine(needs_token=False) as engine:
        yield Inbox.of(engine)


async def _mark(invocation: Invocation, keys: Sequence[str], marking: "Marking") -> int:
    async with _opened(invocation) as box:
        items = {item.key: item for item in await box.items()}
        chosen = list(items) if list(keys) == [ALL] else list(dict.fromkeys(keys))
        if missing := [key for key in chosen if key not in items]:
            raise failed("not_found", f"There is no item {missing[0]!r}. See: runwarden inbox list")
        await marking(box, [items[key] for key in chosen])
    invocation.output.record({"keys": chosen}, [("marked", key) for key in chosen] or [("unchanged", "nothing")])
    return Exit.DONE


def _document(item: InboxItem) -> dict[str, object]:
    return {
        "key": item.key,
        "kind": item.kind,
        "title": item.title,
        "severity": item.severity,
        "at": None if item.at == NO_TIME else rfc3339(item.at),
        "count": item.count,
        "runs": [entry.run_id for entry in item.entries if entry.run_id],
        "back": item.back or None,
        "cure": item.cure or None,
    }
